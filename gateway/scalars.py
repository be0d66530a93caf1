"""Values of a configuration file to what the settings hold: text, names, secrets, flags, counts.

A value from the environment is always text, so a flag or a count is taken from text too. Each
function raises `ValueError` with what would be right, and never repeats the value.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from policies.wording import did_you_mean

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SECRET = re.compile(r"[!-~]+")
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

Out = TypeVar("Out", float, int)


def text(value: object) -> str:
    """Text of at least one character, without line breaks or control characters."""
    if isinstance(value, bool | int | float):
        raise ValueError("must be text; put it in quotes")  # noqa: TRY004  pydantic hears ValueError
    if not isinstance(value, str) or not value.isprintable() or value != value.strip() or not value:
        raise ValueError("must be text on one line, without spaces around it")
    return value


def name(value: object) -> str:
    """A name that fits into a metric's label and a path: letters, digits, `.`, `_`, `-`."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("a name must be up to 64 letters, digits, dots, hyphens and underscores")
    return value


def secret(value: object) -> str:
    """A secret that fits into a header."""
    if isinstance(value, str) and _SECRET.fullmatch(value):
        return value
    if isinstance(value, str) and _SECRET.fullmatch(value.strip()):
        raise ValueError("must not begin or end with a space or line break")
    if value == "":
        raise ValueError("must not be empty; leave the key out if the worker wants none")
    raise ValueError("must be text in quotes, of printable ASCII without spaces")


def flag(value: object) -> bool:
    """True or false."""
    answer = value if isinstance(value, bool) else _FLAGS.get(str(value).lower())
    if answer is None:
        raise ValueError("must be true or false")
    return answer


def count(value: object) -> int:
    """A whole number of at least 1."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:18])
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("must be a whole number of at least 1")
    return value


def some(read: Callable[[str | float], Out]) -> Callable[[str | float], Out]:
    """`read`, but 0 is refused."""

    def read_some(value: str | float) -> Out:
        amount = read(value)
        if amount == 0:
            raise ValueError("must be more than 0")
        return amount

    return read_some


def choice(options: Sequence[str]) -> Callable[[object], str]:
    """One of a few words."""
    listed = "must be " + (
        ", ".join(options[:-1]) + " or " + options[-1] if options[1:] else options[0]
    )

    def read(value: object) -> str:
        if value in options:
            return str(value)
        hint = did_you_mean(value, options) if isinstance(value, str) else ""
        raise ValueError(f"{listed}; {hint}" if hint else listed)

    return read
