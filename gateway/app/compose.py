"""Everything put together.

The only place where implementations are named and constructors called.
"""

import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from gateway.clock import Clock
from gateway.dispatch.desk import BodyMemory, Desk
from gateway.front.bridge import Bridged
from gateway.front.lanes import Patience
from gateway.front.routes import Routes, Status
from gateway.settings import Settings, WorkerSettings
from gateway.telemetry.log import RequestLog, Silent
from gateway.workers.discovery import Discovery
from gateway.workers.endpoint import Spawn, Timeouts
from gateway.workers.fleet import Fleet, Member
from gateway.workers.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A gateway, put together but not yet running."""

    desk: Desk
    fleet: Fleet
    discovery: Discovery
    log: RequestLog | Silent
    status: Status
    routes: Routes
    bridged: Bridged
    patience: Patience


def compose(settings: Settings, clock: Clock, spawn: Spawn, say: Callable[[str], None]) -> Parts:
    """Build a gateway from its settings.

    `spawn` starts a task in the caller's scope, `say` tells the operator.
    """
    fleet = _fleet(settings, clock, spawn)
    log = RequestLog(clock, sys.stdout.buffer, say) if settings.log.requests else Silent()
    desk = Desk(
        fleet=fleet,
        log=log,
        memory=BodyMemory(settings.limits.body_memory_bytes),
        now=clock.now,
        new_id=id_source(),
    )
    created = int(clock.wall())
    status = Status(ready=fleet.ready, cards=lambda: fleet.cards(created))
    patience = Patience(
        head=settings.timeouts.request_head_s,
        body=settings.timeouts.request_body_s,
        request=settings.timeouts.client_idle_s,
    )
    bridged = Bridged(desk, max_body_bytes=settings.limits.body_bytes, patience=patience)
    return Parts(
        desk=desk,
        fleet=fleet,
        discovery=Discovery(fleet, clock, say),
        log=log,
        status=status,
        routes=Routes(bridged, status),
        bridged=bridged,
        patience=patience,
    )


def id_source() -> Callable[[], bytes]:
    """Request ids: a prefix of this process and a counter; a UUID each costs many times that."""
    prefix = b"req-%b-" % os.urandom(6).hex().encode()
    count = itertools.count(1).__next__
    return lambda: b"%b%x" % (prefix, count())


def _fleet(settings: Settings, clock: Clock, spawn: Spawn) -> Fleet:
    """The workers of all pools; one that stands in several pools is one worker."""
    t = settings.timeouts
    timeouts = Timeouts(
        connect=t.connect_s,
        first_byte=t.first_byte_s,
        between_bytes=t.between_bytes_s,
        total=t.total_s,
        idle=t.worker_idle_s,
    )
    known: dict[tuple[str, str | None], Worker] = {}

    def worker(w: WorkerSettings) -> Worker:
        key = (w.url, w.api_key)
        if key not in known:
            known[key] = Worker(
                w.url, api_key=w.api_key, timeouts=timeouts, now=clock.now, spawn=spawn
            )
        return known[key]

    fleet = Fleet()
    for pool in settings.pools:
        fleet.add(pool.model, [Member(worker(w), w.upstream_model) for w in pool.workers])
    return fleet
