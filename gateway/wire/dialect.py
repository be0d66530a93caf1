"""The three protocols that callers speak: how each says that something failed, and that it is done.

A dialect is chosen by the path alone. What a request asks for is none of its business.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, Protocol

import msgspec

from gateway.errors import GatewayError
from gateway.wire import sse
from gateway.wire.shapes import read_as


class Fault(msgspec.Struct, kw_only=True):
    """What went wrong, before it is put into anyone's words.

    Attributes:
        status: the HTTP status it goes with.
        message: for a person.
        kind: its class, in the words of whoever found it; empty = as the status says.
        param: the field of the request that is at fault.
        code: for programs; None = there is none.
        extra: further members of the error that came with it, as JSON.
        beside: members that stood beside the error, as JSON.
    """

    status: int
    message: str
    kind: str = ""
    param: str | None = None
    code: str | None = None
    extra: dict[str, msgspec.Raw] = {}
    beside: dict[str, msgspec.Raw] = {}


class Dialect(Protocol):
    """How a protocol reports failures and ends its streams."""

    def body(self, error: GatewayError) -> bytes:
        """Return the JSON body of an answer that refuses or fails a request."""
        ...

    def event(self, error: GatewayError, last: bytes = b"") -> bytes:
        """Return the event that tells a client that its stream broke; nothing may follow it.

        Args:
            error: why.
            last: the last piece of the stream, for protocols that number their events.
        """
        ...

    def ended(self, last: bytes, previous: bytes) -> bool:
        """Tell whether a stream reached its end, be it a good one or a failure the worker told.

        Args:
            last: its last piece that isn't empty, in whole events.
            previous: the one before, or empty.
        """
        ...

    def render(self, fault: Fault) -> bytes:
        """Return the JSON body that reports `fault`."""
        ...

    def is_error(self, body: bytes) -> bool:
        """Tell whether `body` is an error in just the form that clients of this dialect read."""
        ...


def of_path(path: bytes) -> Dialect:
    """Return the dialect spoken at `path`.

    Args:
        path: as a client wrote it; may have a prefix before `/v1`, parts after, and a query.
    """
    if b"/chat/completions" in path:
        return OPENAI
    found = _PATHS.match(path)
    if found is None:
        return OPENAI
    return ANTHROPIC if found[1] == b"messages" else RESPONSES


_PATHS = re.compile(rb"[^?#]*/v1/(messages|responses)(?:[/?#]|$)")


# ------------------------------------------------------------------------------------------- OpenAI


class _Error(msgspec.Struct):
    """The members of an OpenAI error object that SDKs read."""

    message: str
    type: str
    param: str | None
    code: str | None


class _ErrorBody(msgspec.Struct):
    error: _Error


_ERROR_BODY = msgspec.json.Decoder(_ErrorBody)

_OPENAI_KINDS: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_exceeded",
}


class _OpenAi:
    """Chat, completions, embeddings, and every route that isn't one of the others'."""

    def body(self, error: GatewayError) -> bytes:
        return self.render(_fault_of(error))

    def event(self, error: GatewayError, last: bytes = b"") -> bytes:
        del last
        # No [DONE] after it: some clients take that for a good end.
        return sse.encode(self.body(error))

    def ended(self, last: bytes, previous: bytes) -> bool:
        data = previous + last
        if _DONE.search(data) or _DONE_TYPE.search(data):
            return True
        # Each choice of an answer with several has its own finish, so the newest word counts. That
        # the others are still to come can't be seen from here.
        reasons = _FINISH_REASON.findall(data)
        if reasons and reasons[-1] != b"null":
            return True
        errors = (read_as(_FAILED, said) for said in _payloads(data, b'"error"'))
        return any(error is not None for error in errors)

    def render(self, fault: Fault) -> bytes:
        return msgspec.json.encode(
            {
                **fault.beside,
                "error": {
                    "message": fault.message,
                    "type": fault.kind or _openai_kind(fault.status),
                    "param": fault.param,
                    "code": fault.code,
                    **fault.extra,
                },
            }
        )

    def is_error(self, body: bytes) -> bool:
        return read_as(_ERROR_BODY, body) is not None


class _Failed(msgspec.Struct):
    """Any event whose `error` is an object or a text."""

    error: dict[str, msgspec.Raw] | str


_FAILED = msgspec.json.Decoder(_Failed)

_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]")
_FINISH_REASON = re.compile(rb'"finish_reason"\s*:\s*(null|")')
# Streams of transcriptions, speech and images have no [DONE] and no choices.
_DONE_TYPE = re.compile(
    rb'"type"\s*:\s*"(?:transcript\.text\.done|speech\.audio\.done'
    rb'|image_generation\.completed|image_edit\.completed)"'
)


def _openai_kind(status: int) -> str:
    if status >= 500:  # noqa: PLR2004
        return "server_error"
    return _OPENAI_KINDS.get(status, "invalid_request_error")


# ---------------------------------------------------------------------------------------- Responses


class _Responses(_OpenAi):
    """OpenAI's Responses: errors as in chat, but streams of named, numbered events."""

    def event(self, error: GatewayError, last: bytes = b"") -> bytes:
        numbers = _SEQUENCE_NUMBER.findall(last)
        data = {
            "type": "error",
            "code": error.code,
            "message": error.message,
            "param": error.param,
            "sequence_number": int(numbers[-1]) + 1 if numbers else 0,
        }
        return sse.encode(msgspec.json.encode(data), b"error")

    def ended(self, last: bytes, previous: bytes) -> bool:
        return _has_type(previous + last, _RESPONSES_ENDS)


_SEQUENCE_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d{1,15})\b')
_RESPONSES_ENDS: Final = frozenset(
    (
        "response.completed",
        "response.failed",
        "response.incomplete",
        "response.cancelled",
        "error",
    )
)

# ---------------------------------------------------------------------------------------- Anthropic


class _AnthropicError(msgspec.Struct):
    type: str
    message: str


class _AnthropicBody(msgspec.Struct):
    type: Literal["error"]
    error: _AnthropicError


_ANTHROPIC_BODY = msgspec.json.Decoder(_AnthropicBody)

# 503 has no type of its own there; its clients take it like 529.
_ANTHROPIC_KINDS: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class _Anthropic:
    """Anthropic's Messages."""

    def body(self, error: GatewayError) -> bytes:
        # Our kinds are OpenAI's words, so the status has to say it.
        fault = _fault_of(error)
        fault.kind = ""
        return self.render(fault)

    def event(self, error: GatewayError, last: bytes = b"") -> bytes:
        del last
        return sse.encode(self.body(error), b"error")

    def ended(self, last: bytes, previous: bytes) -> bool:
        return _has_type(previous + last, _ANTHROPIC_ENDS)

    def render(self, fault: Fault) -> bytes:
        kinds = _ANTHROPIC_KINDS
        kind = fault.kind if fault.kind in _KNOWN_TO_ANTHROPIC else ""
        kind = kind or kinds.get(fault.status) or _anthropic_kind(fault.status)
        return msgspec.json.encode(
            {"type": "error", "error": {"type": kind, "message": fault.message}}
        )

    def is_error(self, body: bytes) -> bool:
        return read_as(_ANTHROPIC_BODY, body) is not None


_KNOWN_TO_ANTHROPIC: Final = frozenset(
    (*_ANTHROPIC_KINDS.values(), "invalid_request_error", "api_error")
)
_ANTHROPIC_ENDS: Final = frozenset(("message_stop", "error"))


def _anthropic_kind(status: int) -> str:
    return "api_error" if status >= 500 else "invalid_request_error"  # noqa: PLR2004


# ------------------------------------------------------------------------------------------ common


class _Typed(msgspec.Struct):
    type: str


_TYPED = msgspec.json.Decoder(_Typed)


def _fault_of(error: GatewayError) -> Fault:
    return Fault(
        status=error.status,
        message=error.message,
        kind=error.kind,
        param=error.param,
        code=error.code,
    )


def _payloads(data: bytes, word: bytes) -> Iterator[bytes]:
    """Yield what those events say in which `word` occurs."""
    for event in sse.split(data):
        if word in event:
            yield sse.payload(event)


def _has_type(data: bytes, types: frozenset[str]) -> bool:
    """Tell whether one of the events has one of the types, by what its data says.

    The `event` line isn't asked: SDKs of Responses don't, and some workers leave it out.
    """
    read = (read_as(_TYPED, said) for said in _payloads(data, b'"type"'))
    return any(typed is not None and typed.type in types for typed in read)


OPENAI: Final[Dialect] = _OpenAi()
RESPONSES: Final[Dialect] = _Responses()
ANTHROPIC: Final[Dialect] = _Anthropic()
