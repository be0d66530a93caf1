"""Asks each worker which models it serves.

That is also the active probe: it costs the worker no token.

A worker that is well is asked every ten seconds, one that isn't every second.
"""

import asyncio
from collections.abc import Callable

import msgspec

from gateway.clock import Clock
from gateway.errors import UpstreamFailed, WorkerSpokeNonsense, WorkerTimedOut
from gateway.ports import Call
from gateway.requests import SERVER_ERROR, SUCCESS
from gateway.workers.fleet import Fleet
from gateway.workers.worker import Card, Worker

EVERY_S = 10.0
EVERY_WHEN_ILL_S = 1.0
PATIENCE_S = 5.0
MAX_ANSWER_BYTES = 4 << 20


class _Models(msgspec.Struct):
    data: list[Card]


class _Whole:
    """A receiver that waits for a whole answer."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._parts: list[bytes] = []
        self._size = 0

    def receive(self, call: Call, chunks: list[bytes], *, done: bool) -> None:
        self._parts += chunks
        self._size += sum(map(len, chunks))
        if self._size > MAX_ANSWER_BYTES:
            call.abort()
            self.lost(WorkerSpokeNonsense("The worker's list of models is too large."))
        elif done and not self.answer.done():
            self.answer.set_result((call.status, b"".join(self._parts)))

    def lost(self, failure: UpstreamFailed) -> None:
        if not self.answer.done():
            self.answer.set_exception(failure)


async def ask(worker: Worker) -> tuple[int, bytes]:
    """The worker's answer to GET /v1/models: status and body.

    Raises:
        UpstreamFailed: no whole answer came within `PATIENCE_S`.
    """
    whole = _Whole()
    call = worker.get(b"/v1/models", whole)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await whole.answer
    except TimeoutError as e:
        call.abort()
        raise WorkerTimedOut("The worker didn't list its models in time.") from e
    except asyncio.CancelledError:
        call.abort()
        raise


class Discovery:
    """Keeps the fleet's knowledge of its workers fresh.

    Attributes:
        first_round: set when every worker has been asked once.
    """

    def __init__(self, fleet: Fleet, clock: Clock, say: Callable[[str], None]) -> None:
        self.first_round = asyncio.Event()
        self._fleet = fleet
        self._clock = clock
        self._say = say
        self._said: dict[str, str] = {}
        self._asked: set[str] = set()

    async def look(self, worker: Worker) -> bool:
        """Ask once. True if the worker is well."""
        since = self._clock.now()
        try:
            status, body = await ask(worker)
        except UpstreamFailed as failure:
            worker.probed(failure, 0, since)
            self._tell(worker, failure.message)
            return False
        worker.probed(None, status, since)
        if status != SUCCESS:
            # It is up but lists no models (a reranker, say): then it serves what its pool says.
            worker.listed = worker.listed or []
            self._tell(worker, f"it answered /v1/models with status {status}")
            return status < SERVER_ERROR
        try:
            cards = msgspec.json.decode(body, type=_Models).data
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            cards = []
        cards = [card for card in cards if isinstance(card.get("id"), str)]
        if not cards:
            self._tell(worker, "its /v1/models lists no models")
            return False
        self._fleet.learn(worker, cards)
        self._tell(worker, self._fleet.complaints.get(worker.name, ""))
        return True

    async def follow(self, worker: Worker) -> None:
        """Ask again and again, for as long as the process lives."""
        while True:
            well = await self.look(worker)
            self._asked.add(worker.name)
            if len(self._asked) == len({w.name for w in self._fleet.workers}):
                self.first_round.set()
            again_at = self._clock.now() + (EVERY_S if well else 0.0)
            await self._clock.sleep(EVERY_WHEN_ILL_S)
            while worker.well and self._clock.now() < again_at:
                await self._clock.sleep(EVERY_WHEN_ILL_S)

    def _tell(self, worker: Worker, what: str) -> None:
        """Say a change once, not every second."""
        if self._said.get(worker.name, "") != what:
            self._said[worker.name] = what
            self._say(f"worker {worker.name}: {what or 'well again'}")
