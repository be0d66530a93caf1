"""Foreign JSON read by the shape it may have: the value if it has it, None if not.

For what others wrote and nobody has to refuse: answers, events, error bodies.
"""

from typing import TypeVar

import msgspec

_T = TypeVar("_T")


def read_as(decoder: msgspec.json.Decoder[_T], raw: bytes | msgspec.Raw) -> _T | None:
    """Return what `raw` says, or None: not JSON, another shape, text that isn't UTF-8, too deep."""
    try:
        return decoder.decode(raw)
    except (ValueError, RecursionError):  # msgspec's own errors are ValueErrors
        return None


def is_object(raw: msgspec.Raw) -> bool:
    """Tell whether a raw value is an object; an absent one (empty) isn't."""
    return bytes(memoryview(raw)[:1]) == b"{"
