"""Makes out what a worker's error body says, whatever form its server gives errors.

The message is the worker's own text, cut to size; nothing is made up but a sentence for a worker
that said nothing.
"""

import re
from typing import Any, Final

import msgspec

from gateway.wire.dialect import Fault
from gateway.wire.shapes import read_as

_MAX_MESSAGE_CHARS = 4096
_MAX_HTML_CHARS = 300
_MAX_DETAILS = 5
_HTTP_STATUSES = range(100, 600)

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder()

_NOT_TEXT = re.compile(r"<(script|style)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>", re.I | re.S)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.I | re.S)

# Members that become part of a fault, or wrap one; all others are kept as they came.
_READ: Final = frozenset(
    (
        "code",
        "detail",
        "error",
        "error_description",
        "error_type",
        "message",
        "object",
        "param",
        "type",
    )
)


def fault_of(status: int, body: bytes) -> Fault:
    """Return what `body` says went wrong.

    Known forms, with where they come from: `{"error": {…}}` (OpenAI, vLLM, llama.cpp, Anthropic),
    `{"error": "…", "error_type": "…"}` (TGI; without the type Ollama, and vLLM's 401), `{"error":
    "…", "error_description": "…"}` (OAuth), `{"message": …, "type": …, "code": …}` (SGLang, TEI,
    LMDeploy), `{"detail": …}` (FastAPI, so Triton and many small servers).

    Args:
        status: of the answer.
        body: of the answer; need not be JSON.
    """
    said = read_as(_OBJECT, body)
    if said is None:
        return Fault(status=status, message=_plain(status, body))
    outer = said = (
        read_as(_OBJECT, said.get("detail", b"")) or said
    )  # FastAPI's, around another form
    said = read_as(_OBJECT, said.get("error", b"")) or said
    error = _value(said, "error")
    message = _first_text(said, "message", "error_description", "error")
    param = _text(said, "param")
    if not message and "detail" in said:
        message, param = _of_detail(_value(said, "detail"))
    if not message:
        return Fault(status=status, message=_plain(status, body))
    return Fault(
        status=status,
        message=message[:_MAX_MESSAGE_CHARS],
        kind=_first_text(said, "type", "error_type"),
        param=param,
        code=error if "error_description" in said else _code(_value(said, "code")),
        extra=_others(said),
        beside=_others(outer) if outer is not said else {},
    )


def _others(said: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    return {name: raw for name, raw in said.items() if name not in _READ}


def _value(said: dict[str, msgspec.Raw], name: str) -> Any:
    """Return a member's value; None if it is absent or can't be read."""
    return read_as(_ANY, said.get(name, b"null"))


def _text(said: dict[str, msgspec.Raw], name: str) -> str | None:
    value = _value(said, name)
    return value if isinstance(value, str) else None


def _first_text(said: dict[str, msgspec.Raw], *names: str) -> str:
    """Return the first of these members that is a text and not empty; empty if none is."""
    return next((text for name in names if (text := _text(said, name))), "")


def _code(value: Any) -> str | None:
    """Return an error's code as SDKs expect it: a text, or nothing.

    A number that only repeats an HTTP status says nothing to a program that compares codes.
    """
    if isinstance(value, str):
        return value
    if type(value) is int and value not in _HTTP_STATUSES:
        return str(value)
    return None


def _of_detail(detail: Any) -> tuple[str, str | None]:
    """Return message and field of FastAPI's `detail`: a text, or a list of what is invalid."""
    if isinstance(detail, str):
        return detail, None
    faults = [fault for fault in detail if isinstance(fault, dict)] if type(detail) is list else []
    texts = []
    for fault in faults[:_MAX_DETAILS]:
        field = _field(fault)
        text = str(fault.get("msg", ""))
        texts.append(f"{field}: {text}" if field else text)
    return "; ".join(texts), _field(faults[0]) if faults else None


def _field(fault: dict[str, Any]) -> str | None:
    place = fault.get("loc")
    if not isinstance(place, list):
        return None
    return ".".join(str(part) for part in place if part != "body") or None


def _plain(status: int, body: bytes) -> str:
    """Return the text of a body that isn't an error we know."""
    text = body[: _MAX_MESSAGE_CHARS * 4].decode(errors="replace").strip()
    if text.startswith("<"):
        text = _of_html(text)
    text = text.replace("\0", "")[:_MAX_MESSAGE_CHARS]
    return text or f"The worker answered with status {status} and nothing else."


def _of_html(text: str) -> str:
    """Return what a page is called, or the start of what it says."""
    title = _TITLE.search(text)
    said = _NOT_TEXT.sub(" ", title[1] if title else text)
    return " ".join(said.split())[:_MAX_HTML_CHARS]
