"""How a problem of a configuration shows a value, a place and a suggestion."""

import re
from collections.abc import Sequence
from difflib import get_close_matches

Path = tuple[str | int, ...]

_SHORTEST_HELD = 4  # characters; shorter ones are part of too many words
_LONGEST_SHOWN = 80  # characters
# A password may hold a raw slash, and the scheme may be forgotten: rather hide too much.
_USER = re.compile(r"([A-Za-z]+://)?\S*@")
_QUERY = re.compile(r"\?\S*=\S*")


def presentable(text: str) -> str:
    """`text` on one line, not too long, without the user, password and query of a URL."""
    text = _QUERY.sub("?***", _USER.sub(r"\1***@", text))
    text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def dotted(path: Path) -> str:
    """`("pools", "chat", "workers", 0)` as `pools.chat.workers[0]`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """`did you mean "…"?` if `word` holds or resembles one of `known`, else empty."""
    word = word.lower()
    held = [option for option in known if len(option) >= _SHORTEST_HELD and option in word]
    close = [max(held, key=len)] if held else get_close_matches(word, known, n=1, cutoff=0.6)
    return f'did you mean "{close[0]}"?' if close else ""
