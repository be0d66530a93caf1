"""When a worker is left out, as a function of what happened to it. Pure: `now` is an argument.

A failed connect leaves a worker out at once, for a short time that grows while it goes on failing.
Other failures leave it out when five of them fall within ten seconds; one that fails again on its
return goes at once. An answer with a 4xx status is the caller's affair and never counts.

A probe that is answered brings back a worker that probes couldn't reach either. It says nothing for
a worker that lists its models well and fails its requests: that one comes back when its time is
over, and stays if a request succeeds.
"""

from collections import deque

FIRST_EJECTION_S = 1.0
LONGEST_EJECTION_S = 30.0
HANGING_EJECTION_S = 15.0
FAILURES = 5
WITHIN_S = 10.0


class Breaker:
    """One worker's standing.

    Attributes:
        ejected_until: on the gateway's clock; the worker is left out before it.
    """

    __slots__ = ("_failures", "_in_a_row", "_silent", "ejected_until")

    def __init__(self) -> None:
        self.ejected_until = 0.0
        self._in_a_row = 0
        self._silent = False
        self._failures: deque[float] = deque(maxlen=FAILURES)

    def well(self, now: float) -> bool:
        """Whether it may be told that requests can be served here."""
        return not self._silent and now >= self.ejected_until

    def unreachable(self, now: float) -> None:
        """No connection could be made."""
        self._silent = True
        self._eject(now)

    def failed(self, now: float) -> None:
        """The worker broke off, timed out, spoke nonsense, or answered with a 5xx."""
        self._failures.append(now)
        often = len(self._failures) == FAILURES and now - self._failures[0] <= WITHIN_S
        if often or self._in_a_row:
            self._eject(now)

    def succeeded(self) -> None:
        """It answered a request."""
        self.ejected_until = 0.0
        self._in_a_row = 0
        self._silent = False

    def probe_failed(self, now: float) -> None:
        """It was reached but didn't answer a probe, or not well."""
        self._silent = True
        self.failed(now)

    def hangs(self, now: float) -> None:
        """It let a probe wait in vain, and said nothing else meanwhile.

        Requests would wait there for as long as they may. It is left out until a probe is
        answered, which clears this at once; the next one comes sooner than the time set here.
        """
        self._silent = True
        self.ejected_until = max(self.ejected_until, now + HANGING_EJECTION_S)

    def probe_answered(self) -> None:
        """It answered a probe."""
        if self._silent:
            self.succeeded()

    def _eject(self, now: float) -> None:
        if now < self.ejected_until:
            return  # the same outage, seen by a request that was already under way
        self._failures.clear()
        self.ejected_until = now + min(FIRST_EJECTION_S * 2**self._in_a_row, LONGEST_EJECTION_S)
        self._in_a_row = min(self._in_a_row + 1, 10)
