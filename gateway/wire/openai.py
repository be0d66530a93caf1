"""Requests in OpenAI's form: the few fields that decide, and edits that leave all else as it was.

A body is decoded one level deep and never built again: an edit cuts it at a place that is proven to
be the right one and puts new bytes there. Also here: a worker's error body brought to what SDKs
read.
"""

import re

import msgspec

from gateway.errors import MalformedBody
from gateway.wire.dialect import Dialect
from gateway.wire.faults import fault_of
from gateway.wire.shapes import read_as

Part = bytes | memoryview

_LARGE = 64 << 10  # bytes; from here on a copy costs more than another part to send

# ------------------------------------------------------------------------------------------- facts


class Facts(msgspec.Struct):
    """What is read of a request; everything else in it is the worker's business.

    If a field occurs twice the last one counts, as with nearly every JSON reader.

    Attributes:
        model: the public name.
        stream: None = not said.
        stream_options: as JSON; empty if absent.
        max_tokens: None if absent or not an integer, which is for the worker to refuse. The same
            holds for `max_completion_tokens`, `n` and, as a text, `service_tier`.
    """

    model: str
    stream: bool | None = None
    stream_options: msgspec.Raw = msgspec.Raw(b"")
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    service_tier: str | None = None
    n: int | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: msgspec.Raw = msgspec.Raw(b"")


_FACTS = msgspec.json.Decoder(Facts)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STREAM_OPTIONS = msgspec.json.Decoder(_StreamOptions)

_OPTIONAL: dict[str, msgspec.json.Decoder[int | None] | msgspec.json.Decoder[str | None]] = {
    "max_tokens": msgspec.json.Decoder(int | None),
    "max_completion_tokens": msgspec.json.Decoder(int | None),
    "service_tier": msgspec.json.Decoder(str | None),
    "n": msgspec.json.Decoder(int | None),
}


def read_facts(body: bytes) -> Facts:
    r"""Read the fields of a request that decide what becomes of it.

    JSON is taken as RFC 8259 defines it: NaN and Infinity, a byte order mark and halves of
    surrogate pairs (`"\ud83d"`) are refused. Text is not checked to be UTF-8 where it isn't read.

    Raises:
        MalformedBody: not JSON, not an object, `model` absent or no text, `stream` no boolean.
    """
    try:
        return _FACTS.decode(body)
    except (ValueError, RecursionError):
        return _read_leniently(body)


def _read_leniently(body: bytes) -> Facts:
    """Do the same field by field, to pass over a field that may be wrong or name one that mayn't.

    Raises:
        MalformedBody: as `read_facts`.
    """
    fields = _fields_of(body)
    facts = Facts(
        model=_model_in(fields),
        stream=_stream_in(fields),
        stream_options=fields.get("stream_options", msgspec.Raw(b"")),
    )
    for name, decoder in _OPTIONAL.items():
        try:
            setattr(facts, name, decoder.decode(fields.get(name, b"null")))
        except ValueError:
            continue
    return facts


def _fields_of(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the members of the outermost object, as JSON.

    Raises:
        MalformedBody: there is none.
    """
    try:
        return _FIELDS.decode(body)
    except msgspec.ValidationError:
        raise MalformedBody(
            'The body must be a JSON object, such as {"model": "…", "messages": […]}.'
        ) from None
    except RecursionError:
        raise MalformedBody("The body is nested too deeply.") from None
    except ValueError as error:
        msg = f"The body isn't valid JSON: {_what_is_wrong(body, error)}."
        raise MalformedBody(msg) from None


_AT_BYTE = re.compile(r"^(?:JSON is malformed: )?(.*?)(?: \(byte (\d+)\))?$", re.DOTALL)
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")


def _what_is_wrong(body: bytes, error: ValueError) -> str:
    if body.startswith(b"\xef\xbb\xbf"):
        return "it begins with a byte order mark; send it without"
    if not body.strip():
        return "it is empty"
    what, at = _AT_BYTE.fullmatch(str(error)).groups()  # type: ignore[union-attr]
    if at is not None:
        return f"{what} at byte {at}"
    if "truncated" not in what:
        return "it isn't UTF-8"
    if _HALF_PAIR.search(body):
        return "it ends too early, or has half of a surrogate pair (such as \\ud83d) in a string"
    return f"it ends too early, at byte {len(body)}"


def _model_in(fields: dict[str, msgspec.Raw]) -> str:
    if "model" not in fields:
        raise MalformedBody("`model` is missing: name the model to use.", param="model")
    try:
        return msgspec.json.decode(fields["model"], type=str)
    except ValueError:
        raise MalformedBody("`model` must be a string.", param="model") from None


def _stream_in(fields: dict[str, msgspec.Raw]) -> bool | None:
    try:
        return msgspec.json.decode(fields.get("stream", b"null"), type=bool | None)
    except ValueError:
        raise MalformedBody("`stream` must be true or false.", param="stream") from None


def wants_usage(facts: Facts) -> bool:
    """Tell whether the client itself asked for usage in its stream.

    Anything but an absent, null or false `include_usage` is taken for a yes: what a worker makes of
    an odd one is between the two of them.
    """
    options = facts.stream_options
    if not memoryview(options):
        return False
    read = read_as(_STREAM_OPTIONS, options)
    return read is not None and bytes(read.include_usage) not in (b"", b"null", b"false")


# ------------------------------------------------------------------------------------------- edits


def splice(body: bytes, facts: Facts, *, model: str | None, ask_usage: bool) -> list[Part]:
    """Return the body for a worker, in parts.

    Args:
        body: the client's; not copied if it is large.
        facts: read from this very body.
        model: the worker's name for the model; None = leave it.
        ask_usage: see to it that `stream_options.include_usage` is true, unless the client did, or
            sent `stream_options` of a form that is for the worker to refuse.

    Returns:
        `[body]`, the same object, if there is nothing to change.

    Raises:
        MalformedBody: a name in the outermost object isn't UTF-8.
    """
    changes: dict[str, bytes] = {}
    if model is not None and model != facts.model:
        changes["model"] = msgspec.json.encode(model)
    if ask_usage and not wants_usage(facts):
        options = _asking(facts.stream_options)
        if options is not None:
            changes["stream_options"] = options
    if not changes:
        return [body]
    parts = _cut(body, facts, changes)
    if parts is None:
        parts = _rebuilt(body, changes)
    return parts if len(body) > _LARGE else [b"".join(parts)]


_ASKING = b'{"include_usage":true}'


def _asking(options: msgspec.Raw) -> bytes | None:
    """Return `stream_options` with usage asked for; None if they aren't an object."""
    raw = bytes(options)
    if raw in (b"", b"null"):
        return _ASKING
    fields = read_as(_FIELDS, raw)
    if fields is None:
        return None
    return msgspec.json.encode({**fields, "include_usage": True})


# The proof behind cutting. JSON writes a quote inside a string as \" (or \u0022), so `"model"` with
# a colon behind it is a name: whole, or the end of a longer one that has an escaped quote in it,
# at any depth. The outermost `model` is known to exist, from the facts, and to have a value of the
# kind that is looked for. If no escape in the body can spell a letter of the name, it is written
# out, so it is among the matches. If there is only one match, that is it.
# A letter's escape begins with \u006 (a to o) or \u007 (p to z), the underscore's is \u005f.
_MODEL = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*(?=("[^"\\]*(?:\\.[^"\\]*)*"))', re.DOTALL)
_OPTIONS = re.compile(rb'"stream_options"[ \t\r\n]*:[ \t\r\n]*')


def _cut(body: bytes, facts: Facts, changes: dict[str, bytes]) -> list[Part] | None:
    """Return the parts of the changed body; None if a place to change is in doubt."""
    places: list[tuple[int, int, bytes]] = []
    if "model" in changes:
        found = _only(_MODEL, b'"model"', body)
        if found is None or b"\\u006" in body:
            return None
        places.append((*found.span(1), changes["model"]))
    if "stream_options" in changes:
        place = _place_of_options(body, facts)
        if place is None:
            return None
        start, end, lead = place
        places.append((start, end, lead + changes["stream_options"]))
    view: Part = memoryview(body) if len(body) > _LARGE else body
    parts: list[Part] = []
    at = 0
    for start, end, new in sorted(places):
        parts += view[at:start], new
        at = end
    parts.append(view[at:])
    return parts


def _only(pattern: re.Pattern[bytes], word: bytes, body: bytes) -> re.Match[bytes] | None:
    """Return the only match of `pattern`, which begins with `word`; None if there isn't just one.

    Searching for the word first is many times faster than the pattern on a large body.
    """
    only = None
    at = body.find(word)
    while at >= 0:
        found = pattern.match(body, at)
        if found is not None:
            if only is not None:
                return None
            only = found
        at = body.find(word, at + len(word))
    return only


def _place_of_options(body: bytes, facts: Facts) -> tuple[int, int, bytes] | None:
    """Return start and end of the value of `stream_options`, and what has to stand before it."""
    raw = bytes(facts.stream_options)
    if not raw:
        # Absent, so it can be added last without becoming a duplicate; `model` is before it.
        end = body.rindex(b"}")
        return end, end, b',"stream_options":'
    found = _only(_OPTIONS, b'"stream_options"', body)
    if found is None or any(escape in body for escape in (b"\\u005", b"\\u006", b"\\u007")):
        return None
    return found.end(), found.end() + len(raw), b""


def _rebuilt(body: bytes, changes: dict[str, bytes]) -> list[Part]:
    """Return the changed body, its outermost object written anew around values as they were.

    Raises:
        MalformedBody: a name isn't UTF-8.
    """
    fields: dict[str, msgspec.Raw | bytes] = {**_fields_of(body), **changes}
    parts: list[Part] = []
    lead = b"{"
    for name, value in fields.items():
        parts += lead + msgspec.json.encode(name) + b":", memoryview(value)
        lead = b","
    parts.append(b"}")
    return parts


# ------------------------------------------------------------------------------------------ errors


def normalise_error(status: int, body: bytes, dialect: Dialect) -> bytes:
    """Return a worker's error body in the form that the caller's SDK reads.

    Args:
        status: of the worker's answer, 400 or more.
        body: whatever it sent: JSON of any server's form, HTML, text, nothing.
        dialect: the caller's.

    Returns:
        `body`, the same object, if it is right as it is; else JSON.
    """
    if dialect.is_error(body):
        return body
    return dialect.render(fault_of(status, body))
