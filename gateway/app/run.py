"""The life of the process: listen, look after what waits, and on SIGTERM finish what is in hand."""

import asyncio
import logging
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.app.compose import Parts, compose
from gateway.clock import Clock
from gateway.front.lane import Lane
from gateway.front.lanes import Lanes
from gateway.settings import Settings

SWEEP_S = 0.25
CUT_S = 0.05  # for handlers to end once their connections are cut; to aiohttp 0 means: no limit
FIRST_ROUND_S = 2.0
SILENCE_S = 60
FILES_PER_CONNECTION = 2  # its own and, while it is answered, one to a worker
BACKLOG = 4096
FOR_GOOD_S = 10 * 365 * 86400.0
MAX_HEAD_FIELD_BYTES = 32 << 10  # of a head that aiohttp reads; the lane's own limit is tighter


def _no_nonsense(record: logging.LogRecord) -> bool:
    """Keep out what any client can write into the log: heads that aren't HTTP, keys in them."""
    error = record.exc_info and record.exc_info[1]
    return not isinstance(error, HttpProcessingError)


_log = logging.getLogger("tiergate.http")
_log.addFilter(_no_nonsense)


class Gateway:
    """A gateway and its life.

    Attributes:
        ready: set once it listens; the next three are there from then on.
        parts: what it is made of.
        lanes: the connections of the fast lane.
        addresses: where it listens, as (host, port).
    """

    parts: Parts
    lanes: Lanes
    addresses: list[tuple[str, int]]

    def __init__(self, settings: Settings, clock: Clock, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._clock = clock
        self._say = say
        self.ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()

    def stop(self) -> None:
        """Drain and end; said twice: end without waiting."""
        (self._stop_now if self._stop.is_set() else self._stop).set()

    async def run(self, *, with_lane: bool = True) -> None:
        """Serve until `stop` is called. Raises OSError if the address can't be had."""
        async with asyncio.TaskGroup() as tasks:
            parts = compose(self._settings, self._clock, tasks.create_task, self._say)
            lanes, runner = await self._front(parts)
            self.parts, self.lanes = parts, lanes
            background = [tasks.create_task(parts.discovery.follow(w)) for w in parts.fleet.workers]
            background.append(tasks.create_task(self._sweep(parts, lanes, runner)))
            try:
                await self._first_round(parts)
                server = await self._listen(lanes, runner, with_lane=with_lane)
                self.ready.set()
                await self._stop.wait()
                await self._drain(parts, lanes, runner, server)
            finally:
                for task in background:
                    task.cancel()
                for worker in parts.fleet.workers:
                    worker.endpoint.close()  # calls in hand fail, and their clients are told
                lanes.close()
                await runner.cleanup()
                parts.log.close()

    async def _front(self, parts: Parts) -> tuple[Lanes, web.AppRunner]:
        settings = self._settings
        runner = web.AppRunner(
            parts.routes.application(),
            access_log=None,
            logger=_log,
            auto_decompress=False,  # see gateway.front.body
            handler_cancellation=True,
            shutdown_timeout=CUT_S,  # by then everything had its time
            keepalive_timeout=settings.timeouts.client_idle_s or FOR_GOOD_S,
            max_line_size=MAX_HEAD_FIELD_BYTES,
            max_field_size=MAX_HEAD_FIELD_BYTES,
        )
        await runner.setup()
        aiohttp_server = runner.server
        assert aiohttp_server is not None  # noqa: S101  (made by setup)
        lanes = Lanes(
            desk=parts.desk,
            to_aiohttp=aiohttp_server,
            call_soon=asyncio.get_running_loop().call_soon,
            patience=parts.patience,
            max_body_bytes=settings.limits.body_bytes,
            max_connections=settings.limits.connections,
        )
        return lanes, runner

    async def _first_round(self, parts: Parts) -> None:
        """Let the workers tell their models first; one that is silent doesn't hold up the rest."""
        try:
            async with asyncio.timeout(FIRST_ROUND_S):
                await parts.discovery.first_round.wait()
        except TimeoutError:
            pass
        names = ", ".join(sorted(parts.fleet.models())) or "none yet"
        self._say(f"models: {names}")

    async def _listen(
        self, lanes: Lanes, runner: web.AppRunner, *, with_lane: bool
    ) -> asyncio.Server:
        settings = self._settings
        tls = None
        if settings.tls is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(settings.tls.cert, settings.tls.key)
            tls.set_alpn_protocols(["http/1.1"])
        server = await asyncio.get_running_loop().create_server(
            (lambda: Lane(lanes)) if with_lane else runner.server,  # type: ignore[arg-type]
            settings.listen.host or None,
            settings.listen.port,
            ssl=tls,
            ssl_handshake_timeout=(settings.timeouts.request_head_s or FOR_GOOD_S) if tls else None,
            backlog=BACKLOG,
        )
        for listening in server.sockets:
            _look_after(listening, settings.timeouts.request_body_s)
        scheme = "https" if tls else "http"
        self.addresses = [listening.getsockname()[:2] for listening in server.sockets]
        for host, port in self.addresses:
            self._say(f"listening on {scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        return server

    async def _sweep(self, parts: Parts, lanes: Lanes, runner: web.AppRunner) -> None:
        """Look after everything that waits, a few times a second, instead of a timer for each."""
        aiohttp_server = runner.server
        while True:
            await self._clock.sleep(SWEEP_S)
            now = self._clock.now()
            try:
                lanes.sweep(now, len(aiohttp_server.connections) if aiohttp_server else 0)
                parts.bridged.sweep(now)
                for worker in parts.fleet.workers:
                    worker.endpoint.sweep(now)
                parts.log.flush()
            except Exception as error:  # what fails here must not end what runs there
                self._say(f"sweep: {error!r}")

    async def _drain(
        self, parts: Parts, lanes: Lanes, runner: web.AppRunner, server: asyncio.Server
    ) -> None:
        """Not ready at once; then no more connections; then as long as it takes, within limits."""
        timeouts = self._settings.timeouts
        parts.status.draining = True
        self._say(
            f"draining: {parts.desk.live} requests in hand, which have {timeouts.drain_timeout_s:g}"
            " s to end; a second signal cuts them"
        )
        await self._wait_or_now(timeouts.drain_delay_s, lambda: False)
        server.close()
        lanes.drain()
        parts.bridged.draining = True
        # An exchange ends before its last bytes are on their way to the client.
        await self._wait_or_now(
            timeouts.drain_timeout_s,
            lambda: not (parts.desk.live or lanes or parts.bridged or _unread(runner)),
        )
        self._say(f"stopped with {parts.desk.live} requests cut off")

    async def _wait_or_now(self, seconds: float, enough: Callable[[], bool]) -> None:
        end = self._clock.now() + seconds
        while not enough() and not self._stop_now.is_set() and self._clock.now() < end:
            await self._clock.sleep(min(0.05, max(0.0, end - self._clock.now())))


def _unread(runner: web.AppRunner) -> bool:
    """Whether the end of an answer of aiohttp's is still to be taken by its client."""
    handlers = runner.server.connections if runner.server else []
    return any(h.transport is not None and h.transport.is_closing() for h in handlers)


def _look_after(listening: socket.socket, patience_s: float) -> None:
    """Have the kernel look after clients that vanish without a word, on all connections to come.

    It asks those that are silent for a minute, and gives up on one that takes nothing for
    `patience_s`: the sweep sees only those that hold up an answer, not the end of one.
    """
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENCE_S // 4)
        listening.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(int(patience_s * 1000), 2**31 - 1)
        )


async def until_told(
    gateway: Gateway, *, with_lane: bool, connections: int, say: Callable[[str], None]
) -> None:
    """Run it as this process's own: SIGTERM and SIGINT stop it, and it may open many files."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, gateway.stop)
    # A terminal that closes must not cut what is in hand.
    loop.add_signal_handler(
        signal.SIGHUP, say, "SIGHUP: a changed configuration is taken up by a restart only"
    )
    files = _raise_file_limit()
    if files < connections * FILES_PER_CONNECTION:
        say(
            f"this process may open {files} files: enough for {files // FILES_PER_CONNECTION}"
            f" connections, not for the {connections} of limits.connections (see ulimit -n)"
        )
    await gateway.run(with_lane=with_lane)


def _raise_file_limit() -> int:
    """Every connection is a file; take as many as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else sys.maxsize
