"""Which worker a request goes to.

Pure: workers are seen as rows, and the order of ties is an argument.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class WorkerRow(Protocol):
    """What this decision reads of a worker; times are on the caller's clock."""

    @property
    def running(self) -> int:
        """Requests it has from us now."""
        ...

    @property
    def ejected_until(self) -> float:
        """When it may be chosen again."""
        ...


Row = TypeVar("Row", bound=WorkerRow)


def least_running(
    workers: Sequence[Row], now: float, tried: object | None, turn: int
) -> Row | None:
    """The healthy worker with the fewest running requests; None if all were tried.

    Ties go round by `turn`. If every other worker is ejected, the one that comes back first is
    chosen: a request that may fail is better than one that surely does.
    """
    best: Row | None = None
    fallback: Row | None = None
    n = len(workers)
    for i in range(n):
        row = workers[(turn + i) % n]
        if row is tried:
            continue
        if row.ejected_until > now:
            if fallback is None or row.ejected_until < fallback.ejected_until:
                fallback = row
        elif best is None or row.running < best.running:
            best = row
    return best if best is not None else fallback
