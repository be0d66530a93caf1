"""The lane judged by aiohttp: the same bytes to a gateway with the lane and to one without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from itertools import chain, pairwise

import uvloop

from tests.support.clock import ManualClock
from tests.support.delivery import NEXT, Outcome, deliver
from tests.support.running import running, settings_for
from tests.support.scripted import scripted

Delivery = tuple[bytes, ...]
MOST_CUTS = 14


class Judge:
    """Two gateways before one worker; every delivery is a new connection."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._stack = AsyncExitStack()
        self._runner.run(self._start())

    async def _start(self) -> None:
        enter = self._stack.enter_async_context
        self.worker = await enter(scripted())
        settings = settings_for(self.worker.url)
        self.clock = ManualClock()
        self.lane = await enter(running(settings, clock=self.clock))
        self.aiohttp = await enter(running(settings, with_lane=False, clock=self.clock))

    def stop(self) -> None:
        self._runner.run(self._stack.aclose())

    def with_lane(self, delivery: Delivery) -> Outcome:
        return self._runner.run(deliver(self.lane, self.worker, self.clock, delivery))

    def without(self, delivery: Delivery) -> Outcome:
        return self._runner.run(deliver(self.aiohttp, self.worker, self.clock, delivery))

    def check(
        self, deliveries: Sequence[Delivery], others: Iterable[Delivery] = ()
    ) -> list[Outcome]:
        """Ways to deliver one stream of bytes. Returns what became of each with the lane.

        aiohttp alone drops what is good in a read that also holds something bad, so its outcome
        depends on the cuts; each of its outcomes is right for every cut, also those of `others`.
        """
        allowed = {self.without(deliveries[0])}
        more = chain(deliveries[1:], others)
        outcomes = []
        for delivery in deliveries:
            outcome = self.with_lane(delivery)
            while outcome not in allowed:
                other = next(more, None)
                assert other is not None, _difference(delivery, outcome, allowed)
                allowed.add(self.without(other))
            outcomes.append(outcome)
        return outcomes


@contextmanager
def judge() -> Iterator[Judge]:
    """On uvloop, as in production."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        one = Judge(runner)
        try:
            yield one
        finally:
            one.stop()


def _difference(delivery: Delivery, outcome: Outcome, allowed: set[Outcome]) -> str:
    lines = ["delivered as", *(repr(piece) for piece in delivery)]
    lines += ["with the lane", *_lines(outcome)]
    for other in allowed:
        lines += ["aiohttp alone", *_lines(other)]
    return "\n".join(lines)


def _lines(outcome: Outcome) -> list[str]:
    answers = [f"  {status} {kind}: {body[:80]!r}" for status, kind, body in outcome.answers]
    arrived = [
        f"  at the worker: {line!r} {fields} {body[:80]!r}"
        for line, fields, body in outcome.arrived
    ]
    return [*answers, f"  {outcome.end}", *arrived]


def borders(wire: bytes) -> list[int]:
    """Where a cut may matter: around line ends, within the first bytes, around the end."""
    cuts = {at + step for at, byte in enumerate(wire) if byte in b"\r\n" for step in (0, 1)}
    if len(cuts) > MOST_CUTS:  # of many alike, some
        ordered = sorted(cuts)
        cuts = {ordered[i * len(ordered) // MOST_CUTS] for i in range(MOST_CUTS)}
    cuts |= {1, 5, len(wire) // 2, len(wire) - 1}
    return sorted(cut for cut in cuts if 0 < cut < len(wire))


def cut(wire: bytes, cuts: Iterable[int]) -> Delivery:
    """`wire` in pieces."""
    at = [0, *cuts, len(wire)]
    return tuple(wire[a:b] for a, b in pairwise(at) if a != b)


def deliveries(wire: bytes) -> list[Delivery]:
    """`wire` in many cuts, and behind it a plain request."""
    found = borders(wire)
    ways = [(wire, NEXT), (wire + NEXT,), (*cut(wire, found), NEXT)]
    ways += [(wire[:at], wire[at:], NEXT) for at in found]
    return ways


def by_bytes(wire: bytes) -> Delivery:
    return (*cut(wire, range(1, len(wire))), NEXT)


def in_two(wire: bytes) -> Iterator[Delivery]:
    """Cut in two, at every byte if there aren't too many."""
    places = range(1, len(wire)) if len(wire) < 2000 else borders(wire)
    return ((wire[:at], wire[at:]) for at in places)
