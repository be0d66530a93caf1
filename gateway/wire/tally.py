"""What a usage object says, in the words of any server, brought to one form.

Counts are taken one by one: what is absent, or can't be a number of tokens, changes nothing.
"""

from typing import Any, Final

import msgspec

from gateway.wire.shapes import is_object, read_as
from policies.model import Usage

# No single request has more; a larger number is a worker's fault that someone would pay for.
MOST_TOKENS: Final = 1_000_000_000

# Names in a usage object → what they count. Cached tokens are part of the prompt here.
_NAMES: Final = {
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
_NAMES_BESIDE: Final = {
    "input_tokens": "fresh",
    "cache_read_input_tokens": "cached",
    "cache_creation_input_tokens": "written",
    "output_tokens": "output",
}

_DETAILS: Final = {
    "prompt_tokens_details": {
        "cached_tokens": "cached",
        "created_cache_tokens": "written",
        "cache_write_tokens": "written",
    },
    "input_tokens_details": {"cached_tokens": "cached", "cache_write_tokens": "written"},
    "completion_tokens_details": {"reasoning_tokens": "reasoning"},
    "output_tokens_details": {"reasoning_tokens": "reasoning", "thinking_tokens": "reasoning"},
}

# Anthropic's answers and the events that carry their usage, by `type` as JSON.
BESIDE_TYPES: Final = (b'"message_start"', b'"message_delta"', b'"message"')


class _Timings(msgspec.Struct):
    prompt_n: Any = None
    cache_n: Any = None
    predicted_n: Any = None


_OBJECT = msgspec.json.Decoder(dict[str, Any])
_TIMINGS = msgspec.json.Decoder(_Timings)


class Tally:
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
        usage = read_as(_OBJECT, raw)
        if usage is None:
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
        timings = read_as(_TIMINGS, raw) if is_object(raw) else None
        if timings is None:
            return
        cached, prompt, output = (
            count(value) for value in (timings.cache_n, timings.prompt_n, timings.predicted_n)
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
            if name in names and count(value) is not None:
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
            cached_tokens=part_of(seen("cached"), whole_input),
            cache_write_tokens=part_of(seen("written"), whole_input),
            output_tokens=output,
            reasoning_tokens=part_of(seen("reasoning"), output),
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


def count(value: Any) -> int | None:
    """Return `value` if it can be a number of tokens; a bool or a float can't."""
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def part_of(part: int | None, of: int | None) -> int | None:
    """Return `part`, or None if it is larger than its whole."""
    return None if part is not None and of is not None and part > of else part
