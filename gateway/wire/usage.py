"""Reads token counts out of answers as they pass, in any dialect a worker speaks.

It never raises over what a worker sent and never changes a byte of it, but for one thing: an event
that is there only because the gateway asked for usage can be taken out. A chunk without usage costs
two substring tests; all the rest happens once or twice a stream.
"""

import re
from typing import Annotated, Any

import msgspec

from gateway.wire import sse
from gateway.wire.shapes import is_object, read_as
from gateway.wire.tally import BESIDE_TYPES, MOST_TOKENS, Tally, part_of
from policies.model import Usage

# Quotes inside a JSON string are escaped, so these match in generated text only where a whole value
# is the word. `"usage": null`, which some workers put into every chunk, is turned away here.
_WORTH_A_LOOK = re.compile(rb'"usage"\s*:\s*\{|"error"(?!\s*:\s*null)|"response\.failed"')
_USAGE_KEY = re.compile(rb'"usage"\s*:\s*(?=\{)')
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)

# ------------------------------------------------------------------------------------------ streams


class _Chunk(msgspec.Struct):
    """The data of an event, one level deep; an absent field is empty."""

    usage: msgspec.Raw = msgspec.Raw(b"")
    choices: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")
    type: msgspec.Raw = msgspec.Raw(b"")
    object: msgspec.Raw = msgspec.Raw(b"")
    response: msgspec.Raw = msgspec.Raw(b"")  # Responses: the answer so far
    message: msgspec.Raw = msgspec.Raw(b"")  # Anthropic: the answer at its start
    timings: msgspec.Raw = msgspec.Raw(b"")


class _Holder(msgspec.Struct):
    usage: msgspec.Raw = msgspec.Raw(b"")


_CHUNK = msgspec.json.Decoder(_Chunk)
_HOLDER = msgspec.json.Decoder(_Holder)
_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])

# What a chunk says of itself, besides what it carries.
_ENVELOPE = {"id", "object", "created", "model", "choices", "usage", "system_fingerprint",
             "service_tier", "timings"}  # fmt: skip

_NO_ERROR = (b"", b"null", b"false", b'""', b"{}")


class UsageScanner:
    """Watches one stream.

    Usage is read from any event; of each count the last one said stands, so running totals and an
    Anthropic stream that tells input first and output last both come out right.

    Attributes:
        usage: what the stream has said so far; None = nothing.
        failed: the worker ended its answer with an error inside the stream.

    Args:
        strip: take out an event in the form of OpenAI's chat and completions streams that carries
            usage and no choices. For clients that didn't ask for it: one that indexes `choices[0]`
            would break on it. What else such an event tells of itself goes with it.
    """

    __slots__ = ("_strip", "_tally", "failed", "usage")

    def __init__(self, strip: bool) -> None:  # noqa: FBT001 - the one thing to say of a scanner
        self.usage: Usage | None = None
        self.failed = False
        self._strip = strip
        self._tally = Tally()

    def scan(self, data: bytes) -> bytes:
        """Return what to pass on of `data`: itself, unless an event was taken out.

        Args:
            data: whole events, as cut by `sse.whole`. At the end of a stream it may be a torn one.
        """
        if b'"usage"' not in data and b'"error"' not in data:
            return data
        return self._look(data)

    def _look(self, data: bytes) -> bytes:
        if _WORTH_A_LOOK.search(data) is None:
            return data
        events = list(sse.split(data))
        kept = [
            event
            for event in events
            if _WORTH_A_LOOK.search(event) is None or not self._is_ours(event)
        ]
        return data if len(kept) == len(events) else b"".join(kept)

    def _is_ours(self, event: bytes) -> bool:
        """Read one event; whether it is to be taken out."""
        said = sse.payload(event)
        chunk = read_as(_CHUNK, said)
        if chunk is None:
            return False
        failed = _is_failure(chunk)
        self.failed = self.failed or failed
        usage = _usage_in(chunk)
        if usage is None:
            return False
        self._tally.add(usage, beside=bytes(chunk.type) in BESIDE_TYPES)
        self._tally.add_timings(chunk.timings)
        self.usage = self._tally.usage()
        return self._strip and not failed and _is_usage_only(chunk, said)


def _is_failure(chunk: _Chunk) -> bool:
    return (
        bytes(chunk.error) not in _NO_ERROR
        or bytes(chunk.type) in (b'"error"', b'"response.failed"')
        or bytes(chunk.object) == b'"error"'
    )


def _usage_in(chunk: _Chunk) -> msgspec.Raw | None:
    """Return the usage object of a chunk, its own or the one of the answer it holds."""
    if is_object(chunk.usage):
        return chunk.usage
    for answer in (chunk.response, chunk.message):
        holder = read_as(_HOLDER, answer) if is_object(answer) else None
        if holder is not None and is_object(holder.usage):
            return holder.usage
    return None


def _is_usage_only(chunk: _Chunk, said: bytes) -> bool:
    if not is_object(chunk.usage) or bytes(chunk.type):
        return False
    choices = bytes(chunk.choices)
    if choices.startswith(b"["):
        return not choices[1:-1].strip()
    # Nothing shows that this is a chunk of a chat, so it has to be nothing else.
    keys = read_as(_KEYS, said)
    return keys is not None and choices in (b"", b"null") and keys.keys() <= _ENVELOPE


# ------------------------------------------------------------------------------------ whole answers


class _Answer(msgspec.Struct):
    """A whole answer, one level deep, with every place where workers put counts."""

    usage: msgspec.Raw = msgspec.Raw(b"")
    type: msgspec.Raw = msgspec.Raw(b"")
    meta: msgspec.Raw = msgspec.Raw(b"")  # Cohere's form of rerank and embed
    meta_info: msgspec.Raw = msgspec.Raw(b"")  # SGLang's own /generate
    timings: msgspec.Raw = msgspec.Raw(b"")  # llama.cpp
    prompt_eval_count: Any = None  # Ollama's own routes
    eval_count: Any = None


class _Meta(msgspec.Struct):
    tokens: msgspec.Raw = msgspec.Raw(b"")
    billed_units: msgspec.Raw = msgspec.Raw(b"")


_ANSWER = msgspec.json.Decoder(_Answer)
_META = msgspec.json.Decoder(_Meta)


# The form of nearly every answer. It is read in one step, and whatever isn't quite so in many.

_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]


class _CommonInput(msgspec.Struct, forbid_unknown_fields=True):
    cached_tokens: _Count | None = None


class _CommonOutput(msgspec.Struct, forbid_unknown_fields=True):
    reasoning_tokens: _Count | None = None


class _CommonUsage(msgspec.Struct, forbid_unknown_fields=True):
    prompt_tokens: _Count
    completion_tokens: _Count | None = None
    total_tokens: _Count | None = None
    prompt_tokens_details: _CommonInput | None = None
    completion_tokens_details: _CommonOutput | None = None


class _CommonAnswer(msgspec.Struct):
    usage: _CommonUsage
    timings: msgspec.UnsetType | None = msgspec.UNSET  # llama.cpp's are read in the other way


_COMMON = msgspec.json.Decoder(_CommonAnswer)


def _common_usage(body: bytes) -> Usage | None:
    """Return the usage of an answer in the common form, None if it has another."""
    said = read_as(_COMMON, body)
    if said is None:
        return None
    usage = said.usage
    prompt, output = usage.prompt_tokens, usage.completion_tokens
    of_prompt, of_output = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = None if of_prompt is None else of_prompt.cached_tokens
    reasoning = None if of_output is None else of_output.reasoning_tokens
    return Usage(
        input_tokens=prompt,
        cached_tokens=part_of(cached, prompt),
        output_tokens=output,
        reasoning_tokens=part_of(reasoning, output),
    )


def usage_of_answer(body: bytes) -> Usage | None:
    """Return what a whole JSON answer says of its tokens; None if it isn't JSON or says nothing.

    Knows chat, completions, embeddings, Responses, Messages, rerank and score (vLLM, Jina, Cohere),
    and the own routes of SGLang, llama.cpp and Ollama. Reads one level; text is passed over.
    """
    common = _common_usage(body)
    if common is not None:
        return common
    answer = read_as(_ANSWER, body)
    if answer is None:
        return None
    tally = Tally()
    if is_object(answer.usage):
        tally.add(answer.usage, beside=bytes(answer.type) in BESIDE_TYPES)
    elif is_object(answer.meta_info):
        tally.add(answer.meta_info)
    elif (meta := read_as(_META, answer.meta)) is not None:
        tally.add(meta.tokens if is_object(meta.tokens) else meta.billed_units)
    else:
        tally.add_counts(input=answer.prompt_eval_count, output=answer.eval_count)
    tally.add_timings(answer.timings)
    return tally.usage()


def usage_of_tail(tail: bytes) -> Usage | None:
    """Return what the end of a JSON answer says of its tokens, without the rest of the answer.

    An object is taken only if it is a member of the outermost one: after it nothing may be left
    open but that. The answer's type isn't in sight, so Anthropic's counts are known by their names.

    Args:
        tail: the last few KB, up to the answer's last byte; may begin anywhere.
    """
    for key in reversed(list(_USAGE_KEY.finditer(tail))):
        end = _closes(tail, key.end(), 0)
        if end > 0 and not tail[_closes(tail, end, 1) :].strip():
            tally = Tally()
            tally.add(tail[key.end() : end])
            return tally.usage()
    return None


def _closes(data: bytes, start: int, depth: int) -> int:
    """Return the index after the bracket that brings `depth` to 0; -1 if none does.

    Args:
        data: JSON from `start` on.
        start: outside any string.
        depth: how many brackets are open there.
    """
    for found in _STRUCTURE.finditer(data, start):
        first = found.group()[:1]
        if first in b"[{":
            depth += 1
        elif first in b"]}":
            depth -= 1
            if depth == 0:
                return found.end()
    return -1
