"""Quantities as people write them, to numbers and back: durations and sizes.

Nothing is rounded on the way.
A `ValueError` from here says what would be right and never repeats the text.
"""

import re

_NUMBER_AND_UNIT = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,9}))?([A-Za-z]+)")

_MICROSECONDS = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
# Limits of memory and messages are powers of two wherever servers have them (nginx, Redis,
# PostgreSQL), so MB is MiB here.
_BYTES = {"TB": 1024**4, "GB": 1024**3, "MB": 1024**2, "KB": 1024, "B": 1}
_BYTES_BY_NAME = _BYTES | {f"{unit[0]}iB": n for unit, n in _BYTES.items() if unit != "B"}

_LONGEST_DAYS = 3650  # what timers take without overflow, and more than anybody means
_DURATION_SHAPE = "must be a duration with its unit, such as 500ms, 2s, 1.5m, 24h or 7d; or 0"
_TOO_LONG = f"must be at most {_LONGEST_DAYS}d"
_SIZE_SHAPE = "must be a size such as 32MB, 64KB or 1.5GB (1 MB = 1024 * 1024 bytes)"


def duration(value: str | float) -> float:
    """Seconds, from `"500ms"`, `"2s"`, `"1.5h"`, `"24h"`, `"7d"` or 0. Units: us, ms, s, m, h, d.

    Raises:
        ValueError: it is something else, a number without a unit, finer than a microsecond, or
            longer than ten years.
    """
    if (_is_number(value) and value == 0) or value == "0":
        return 0.0
    microseconds = _whole(value, _MICROSECONDS) if isinstance(value, str) else None
    if microseconds is None:
        raise ValueError(_DURATION_SHAPE)
    if microseconds > _LONGEST_DAYS * _MICROSECONDS["d"]:
        raise ValueError(_TOO_LONG)
    return microseconds / 1_000_000


def duration_text(seconds: float) -> str:
    """The shortest spelling of `seconds`, to the microsecond; `duration` reads it back."""
    return _spell(round(seconds * 1_000_000), _MICROSECONDS)


def size(value: str | float) -> int:
    """Bytes, from `"32MB"`, `"64KiB"`, `"1.5GB"` or a whole number; KB and KiB both are 1024 bytes.

    Raises:
        ValueError: it is something else, negative, or not a whole number of bytes.
    """
    if isinstance(value, int) and _is_number(value) and value >= 0:
        return value
    text = f"{value}B" if isinstance(value, str) and value.isdecimal() else value
    number_of_bytes = _whole(text, _BYTES_BY_NAME) if isinstance(text, str) else None
    if number_of_bytes is None:
        raise ValueError(_SIZE_SHAPE)
    return number_of_bytes


def size_text(number_of_bytes: int) -> str:
    """The shortest spelling with one unit; `size` reads it back."""
    return _spell(number_of_bytes, _BYTES)


def _whole(text: str, units: dict[str, int]) -> int | None:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[3] not in units:
        return None
    decimals = match[2] or ""
    count, remainder = divmod(int(match[1] + decimals) * units[match[3]], 10 ** len(decimals))
    return None if remainder else count


def _spell(count: int, units: dict[str, int]) -> str:
    if count == 0:
        return "0"
    unit = next(name for name, worth in units.items() if count % worth == 0)
    return f"{count // units[unit]}{unit}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
