"""Finds one field of a multipart/form-data body without copying the body.

Forms are RFC 7578, their framing RFC 2046 section 5.1. What another reader could take differently
(two fields of one name, a line ended by LF alone, an escape in a name, text after the end) is
refused, so that the worker can't see another model than the gateway did.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from gateway.errors import MalformedBody

_MAX_HEAD_BYTES = 16 << 10  # of one part
_MAX_VALUE_BYTES = 4 << 10  # of a field that is read; what is longer is no name and no flag

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = re.compile(
    rb"[ \t]*;[ \t]*(%b)=(?:\"((?:[^\"\\\r\n]|\\[^\r\n])*)\"|(%b))" % (_TOKEN, _TOKEN)
)
_FIELD = re.compile(rb"(%b):[ \t]*([^\r\n\0]*?)[ \t]*\r\n" % _TOKEN)
_MULTIPART = re.compile(rb"[ \t]*multipart/form-data", re.IGNORECASE)
_FORM_DATA = re.compile(rb"form-data", re.IGNORECASE)
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]")
_BLANK = re.compile(rb"[ \t]*\r\n")
_END = re.compile(rb"--[ \t\r\n]*\Z")

_NO_ENCODING: Final = frozenset((b"", b"7bit", b"8bit", b"binary"))
_CHARSETS: Final = frozenset((b"utf-8", b"utf8", b"us-ascii"))


class _UnclearForm(ValueError):  # noqa: N818 - named by what is so
    """The form isn't one, or could be read in two ways; says what is wrong."""


class _Part(NamedTuple):
    """One part: its fields by lower-case name, and where its content is in the body."""

    head: dict[bytes, bytes]
    start: int
    end: int


def model_of(content_type: bytes, body: bytes) -> tuple[str, int, int]:
    """Return the value of the field `model`, and where in `body` it starts and ends.

    Args:
        content_type: of the request, with its boundary.
        body: the whole body.

    Raises:
        MalformedBody: there is no such field, it is empty, or the form is broken.
    """
    found = field_of(content_type, body, "model")
    if found is None or not found[0]:
        raise MalformedBody("The form needs a field `model`: name the model to use.", param="model")
    return found


def field_of(content_type: bytes, body: bytes, name: str) -> tuple[str, int, int] | None:
    """Return the value of a text field, and where in `body` it starts and ends; None if absent.

    Raises:
        MalformedBody: the form is broken, or has the field twice or not as a plain text.
    """
    try:
        part = _only(body, _boundary(content_type), name)
        return part and (_text(body, part, name), part.start, part.end)
    except _UnclearForm as error:
        msg = f"The form can't be read: {error}."
        raise MalformedBody(msg, param=name) from None


def _only(body: bytes, boundary: bytes, name: str) -> _Part | None:
    parts = [part for part in _parts(body, boundary) if _name(part) == name]
    if len(parts) > 1:
        msg = f"the field `{name}` occurs twice"
        raise _UnclearForm(msg)
    return parts[0] if parts else None


def _boundary(content_type: bytes) -> bytes:
    kind = _MULTIPART.match(content_type)
    if kind is None:
        raise _UnclearForm("its Content-Type isn't multipart/form-data")
    boundary = _parameters(content_type, kind.end()).get(b"boundary", b"")
    if _BOUNDARY.fullmatch(boundary) is None:
        raise _UnclearForm("its Content-Type names no boundary, or not a valid one")
    return boundary


def _parameters(value: bytes, at: int) -> dict[bytes, bytes]:
    """Return the parameters behind a field's value, by lower-case name; escapes stay as written."""
    found: dict[bytes, bytes] = {}
    while (parameter := _PARAMETER.match(value, at)) is not None:
        name, quoted, plain = parameter.groups()
        if name.lower() in found:
            raise _UnclearForm("a header has a parameter twice")
        found[name.lower()] = plain if quoted is None else quoted
        at = parameter.end()
    if value[at:].strip(b" \t;"):
        raise _UnclearForm("a header has parameters of no known form")
    return found


def _parts(body: bytes, boundary: bytes) -> Iterator[_Part]:
    delimiter = b"\r\n--" + boundary
    if not body.startswith(delimiter[2:]):
        raise _UnclearForm("it doesn't begin with its boundary")
    at = len(delimiter) - 2
    while _END.match(body, at) is None:
        blank = _BLANK.match(body, at)
        if blank is None:
            raise _UnclearForm(
                "its boundary occurs in the middle of a line, or text follows its end"
            )
        head_end = body.find(b"\r\n\r\n", blank.end(), blank.end() + _MAX_HEAD_BYTES)
        start = head_end + 4
        end = body.find(delimiter, start)
        if head_end < 0 or end < 0:
            raise _UnclearForm("it ends in the middle of a part")
        yield _Part(_head(body[blank.end() : start - 2]), start, end)
        at = end + len(delimiter)


def _head(lines: bytes) -> dict[bytes, bytes]:
    head: dict[bytes, bytes] = {}
    at = 0
    while (field := _FIELD.match(lines, at)) is not None:
        name = field[1].lower()
        if name in head:
            raise _UnclearForm("a part has a header twice")
        head[name] = field[2]
        at = field.end()
    if at < len(lines):
        raise _UnclearForm("a part has a header of no known form")
    return head


def _disposition(part: _Part) -> dict[bytes, bytes]:
    value = part.head.get(b"content-disposition", b"")
    kind = _FORM_DATA.match(value)
    if kind is None:
        raise _UnclearForm("a part has no `Content-Disposition: form-data`")
    return _parameters(value, kind.end())


def _name(part: _Part) -> str:
    parameters = _disposition(part)
    name = parameters.get(b"name")
    if name is None or b"name*" in parameters or b"\\" in name:
        raise _UnclearForm("a part has no name, or one with an escape in it")
    return name.decode(errors="replace")


def _text(body: bytes, part: _Part, name: str) -> str:
    """Return the content of a part that is a plain text field."""
    kind, _, rest = part.head.get(b"content-type", b"text/plain").partition(b";")
    charset = _parameters(b";" + rest, 0).get(b"charset", b"utf-8")
    encoding = part.head.get(b"content-transfer-encoding", b"")
    plain = (
        not {b"filename", b"filename*"} & _disposition(part).keys()
        and kind.strip().lower() == b"text/plain"
        and charset.lower() in _CHARSETS
        and encoding.lower() in _NO_ENCODING
        and part.end - part.start <= _MAX_VALUE_BYTES
    )
    if not plain:
        msg = f"the field `{name}` isn't a short plain text"
        raise _UnclearForm(msg)
    try:
        return body[part.start : part.end].decode()
    except UnicodeDecodeError:
        msg = f"the field `{name}` isn't UTF-8"
        raise _UnclearForm(msg) from None
