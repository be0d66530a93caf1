"""Reads token counts out of answers as they pass, in any dialect a worker speaks.

It never raises over what a worker sent and never changes a byte of it, but for one thing: an event
that is there only because the gateway asked for usage can be taken out. A chunk without usage costs
two substring tests; all the rest happens once or twice a stream.
"""

import re
from typing import Annotated, Any, TypeVar

import msgspec

from gateway.wire import sse
from policies.model import Usage

# No single request has more; a larger number is a worker's fault that someone would pay for.
_MOST_TOKENS = 1_000_000_000

# Quotes inside a JSON string are escaped, so these match in generated text only where a whole value
# is the word. `"usage": null`, which some workers put into every chunk, is turned away here.
_WORTH_A_LOOK = re.compile(rb'"usage"\s*:\s*\{|"error"(?!\s*:\s*null)|"response\.failed"')
_USAGE_KEY = re.compile(rb'"usage"\s*:\s*(?=\{)')
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)

_T = TypeVar("_T")

_UNREADABLE = (ValueError, RecursionError)  # msgspec's errors are ValueErrors

# ------------------------------------------------------------------------- what a usage object says

# Names in a usage object → what they count. Cached tokens are part of the prompt here.
_NAMES = {
    "prompt_tokens": "input",
    "input_tokens": "input",
    "completion_tokens": "output",
    "output_tokens": "output",
    "total_tokens": "total",
    "cached_tokens": "cached",
    "cache_read_input_tokens": "cached",
    "prompt_cache_hit_tokens": "cached",
    "cache_creation_input_tokens": "written",
    "reasoning_tokens": "reasoning",
}

# The same for Anthropic's, whose `input_tokens` leaves out what the cache read or wrote.
_NAMES_BESIDE = {
    "input_tokens": "fresh",
    "cache_read_input_tokens": "cached",
    "cache_creation_input_tokens": "written",
    "output_tokens": "output",
}

_DETAILS = {
    "prompt_tokens_details": {
        "cached_tokens": "cached",
        "created_cache_tokens": "written",
        "cache_write_tokens": "written",
    },
    "input_tokens_details": {"cached_tokens": "cached", "cache_write_tokens": "written"},
    "completion_tokens_details": {"reasoning_tokens": "reasoning"},
    "output_tokens_details": {"reasoning_tokens": "reasoning", "thinking_tokens": "reasoning"},
}

_BESIDE_TYPES = (b'"message_start"', b'"message_delta"', b'"message"')


class _Tally:
    """The last count seen of each kind, over all usage objects of one answer."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def add(self, raw: bytes | msgspec.Raw, *, beside: bool = False) -> None:
        """Take in a usage object; what it doesn't say, or says in nonsense, stays as it was.

        Args:
            raw: the object as JSON.
            beside: cached tokens are counted beside `input_tokens`, not in it.
        """
        try:
            usage = msgspec.json.decode(raw)
        except _UNREADABLE:
            return
        if not isinstance(usage, dict):
            return
        if "prompt_tokens" not in usage:
            beside = (
                beside
                or "cache_read_input_tokens" in usage
                or "cache_creation_input_tokens" in usage
            )
        self._take(usage, _NAMES_BESIDE if beside else _NAMES)
        for name in _DETAILS.keys() & usage.keys():
            if isinstance(usage[name], dict):
                self._take(usage[name], _DETAILS[name])

    def add_timings(self, raw: msgspec.Raw) -> None:
        """Take in llama.cpp's `timings`, where nothing better was said.

        Its `prompt_n` leaves out what was in the cache, so without `cache_n` it isn't the prompt.
        """
        timings = _decoded(raw, _TIMINGS)
        if timings is None:
            return
        cached, prompt, output = (
            _count(value) for value in (timings.cache_n, timings.prompt_n, timings.predicted_n)
        )
        if cached is not None:
            self._seen.setdefault("cached", cached)
            if prompt is not None:
                self._seen.setdefault("input", prompt + cached)
        if output is not None:
            self._seen.setdefault("output", output)

    def add_counts(self, **counts: Any) -> None:
        """Take in single numbers, by kind."""
        self._take(counts, {kind: kind for kind in counts})

    def _take(self, counts: dict[str, Any], names: dict[str, str]) -> None:
        for name, value in counts.items():
            if name in names and _count(value) is not None:
                self._seen[names[name]] = value

    def usage(self) -> Usage | None:
        """Return what is known so far; None if that is nothing.

        A part that is larger than its whole is left out: it can't be billed.
        """
        if not self._seen:
            return None
        seen = self._seen.get
        whole_input = self._input()
        output = seen("output")
        return Usage(
            input_tokens=whole_input,
            cached_tokens=_part(seen("cached"), whole_input),
            cache_write_tokens=_part(seen("written"), whole_input),
            output_tokens=output,
            reasoning_tokens=_part(seen("reasoning"), output),
        )

    def _input(self) -> int | None:
        seen = self._seen.get
        if (whole_input := seen("input")) is not None:
            return whole_input
        if (fresh := seen("fresh")) is not None:
            return fresh + seen("cached", 0) + seen("written", 0)
        if "output" not in self._seen:
            return seen("total")  # rerankers and embedders may say only this
        return None


def _count(value: Any) -> int | None:
    """Return `value` if it can be a number of tokens; a bool or a float can't."""
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


def _part(part: int | None, of: int | None) -> int | None:
    return None if part is not None and of is not None and part > of else part


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


class _Timings(msgspec.Struct):
    prompt_n: Any = None
    cache_n: Any = None
    predicted_n: Any = None


_CHUNK = msgspec.json.Decoder(_Chunk)
_HOLDER = msgspec.json.Decoder(_Holder)
_TIMINGS = msgspec.json.Decoder(_Timings)
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
        self._tally = _Tally()

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
        chunk = _decoded(said, _CHUNK)
        if chunk is None:
            return False
        failed = _is_failure(chunk)
        self.failed = self.failed or failed
        usage = _usage_in(chunk)
        if usage is None:
            return False
        self._tally.add(usage, beside=bytes(chunk.type) in _BESIDE_TYPES)
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
    if _is_object(chunk.usage):
        return chunk.usage
    for answer in (chunk.response, chunk.message):
        holder = _decoded(answer, _HOLDER)
        if holder is not None and _is_object(holder.usage):
            return holder.usage
    return None


def _is_usage_only(chunk: _Chunk, said: bytes) -> bool:
    if not _is_object(chunk.usage) or bytes(chunk.type):
        return False
    choices = bytes(chunk.choices)
    if choices.startswith(b"["):
        return not choices[1:-1].strip()
    # Nothing shows that this is a chunk of a chat, so it has to be nothing else.
    keys = _decoded(said, _KEYS)
    return keys is not None and choices in (b"", b"null") and keys.keys() <= _ENVELOPE


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"


def _decoded(raw: bytes | msgspec.Raw, decoder: "msgspec.json.Decoder[_T]") -> _T | None:
    try:
        return decoder.decode(raw)
    except _UNREADABLE:
        return None


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

_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST_TOKENS)]


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
    said = _decoded(body, _COMMON)
    if said is None:
        return None
    usage = said.usage
    prompt, output = usage.prompt_tokens, usage.completion_tokens
    of_prompt, of_output = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = None if of_prompt is None else of_prompt.cached_tokens
    reasoning = None if of_output is None else of_output.reasoning_tokens
    return Usage(
        input_tokens=prompt,
        cached_tokens=_part(cached, prompt),
        output_tokens=output,
        reasoning_tokens=_part(reasoning, output),
    )


def usage_of_answer(body: bytes) -> Usage | None:
    """Return what a whole JSON answer says of its tokens; None if it isn't JSON or says nothing.

    Knows chat, completions, embeddings, Responses, Messages, rerank and score (vLLM, Jina, Cohere),
    and the own routes of SGLang, llama.cpp and Ollama. Reads one level; text is passed over.
    """
    common = _common_usage(body)
    if common is not None:
        return common
    answer = _decoded(body, _ANSWER)
    if answer is None:
        return None
    tally = _Tally()
    if _is_object(answer.usage):
        tally.add(answer.usage, beside=bytes(answer.type) in _BESIDE_TYPES)
    elif _is_object(answer.meta_info):
        tally.add(answer.meta_info)
    elif (meta := _decoded(answer.meta, _META)) is not None:
        tally.add(meta.tokens if _is_object(meta.tokens) else meta.billed_units)
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
            tally = _Tally()
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
