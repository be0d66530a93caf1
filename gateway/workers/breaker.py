"""When a worker is left out, as a function of what happened to it. Pure: `now` is an argument.

A failed connect leaves a worker out at once, for a short time that grows while it goes on failing.
Other failures leave it out when five of them fall within ten seconds. An answer with a 4xx status
is the caller's affair and never counts.
"""

from collections import deque

FIRST_EJECTION_S = 1.0
LONGEST_EJECTION_S = 30.0
FAILURES = 5
WITHIN_S = 10.0


class Breaker:
    """One worker's standing.

    Attributes:
        ejected_until: on the gateway's clock; the worker is left out before it.
    """

    __slots__ = ("_failures", "_in_a_row", "ejected_until")

    def __init__(self) -> None:
        self.ejected_until = 0.0
        self._in_a_row = 0
        self._failures: deque[float] = deque(maxlen=FAILURES)

    def unreachable(self, now: float) -> None:
        """No connection could be made."""
        if now < self.ejected_until:
            return  # the same outage, seen by a request that was already under way
        self._eject(now)

    def failed(self, now: float) -> None:
        """The worker broke off, timed out, spoke nonsense, or answered with a 5xx."""
        self._failures.append(now)
        if len(self._failures) == FAILURES and now - self._failures[0] <= WITHIN_S:
            self._failures.clear()
            if now >= self.ejected_until:
                self._eject(now)

    def succeeded(self) -> None:
        """The worker answered, to a request or to a probe."""
        self.ejected_until = 0.0
        self._in_a_row = 0

    def _eject(self, now: float) -> None:
        self.ejected_until = now + min(FIRST_EJECTION_S * 2**self._in_a_row, LONGEST_EJECTION_S)
        self._in_a_row = min(self._in_a_row + 1, 10)
