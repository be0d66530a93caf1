"""Several workers of one model: who gets a request, who is left out, and who steps in."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.settings import PoolSettings, Timeouts, WorkerSettings
from tests.support.clock import ManualClock
from tests.support.programs import free_port
from tests.support.scripted import (
    ANSWER,
    CLOSE,
    DONE_EVENT,
    HANG,
    RESET,
    STREAM_HEAD,
    WAIT,
    Scripted,
    answer,
    chunk,
    delta,
    models,
    scripted,
    streamed,
)
from tests.support.stand import CHAT, Reply, Stand, body, standing

BUSY = answer(b'{"error":{"message":"busy"}}', "503 Service Unavailable", b"retry-after: 7")


def one_pool(*urls: str) -> tuple[PoolSettings, ...]:
    """All of them serve `m`, whether they say so or not."""
    workers = tuple(WorkerSettings(url=url) for url in urls)
    return (PoolSettings(name="p", model="m", workers=workers),)


@asynccontextmanager
async def pair(clock: ManualClock | None = None) -> AsyncIterator[tuple[Stand, Scripted, Scripted]]:
    async with scripted() as a, scripted() as b:
        pools = one_pool(a.url, b.url)
        async with standing(a, b, clock=clock, pools=pools) as stand:
            yield stand, a, b
            a.release()
            b.release()
            await a.until(stand.settled)


def seen_by(*workers: Scripted) -> list[int]:
    return [len(worker.seen) for worker in workers]


# ---- who gets a request


async def test_a_burst_spreads():
    """Counted when a worker is chosen, not when it answers: else all would go to one."""
    async with scripted() as a, scripted() as b, scripted() as c:
        workers = (a, b, c)
        for worker in workers:
            worker.default = [WAIT, answer()]
        pools = one_pool(*(w.url for w in workers))
        async with standing(*workers, pools=pools) as stand, asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(stand.ask()) for _ in range(30)]
            await a.until(lambda: sum(seen_by(*workers)) == 30)
            assert seen_by(*workers) == [10, 10, 10]
            for worker in workers:
                worker.release()
            assert {(await one).status for one in asked} == {200}


async def test_the_one_with_fewer_running_gets_the_next():
    async with pair() as (stand, a, b), asyncio.TaskGroup() as tasks:
        a.default = [WAIT, answer()]
        while not a.seen:
            one = tasks.create_task(stand.ask())
            await a.until(lambda one=one: a.seen or one.done())
        before = len(b.seen)
        for _ in range(10):
            assert (await stand.ask()).status == 200
        assert seen_by(a, b) == [1, before + 10]
        a.release()


async def test_one_that_hangs_harms_only_its_own_requests():
    clock = ManualClock()
    async with pair(clock) as (stand, a, b), asyncio.TaskGroup() as tasks:
        a.default = [HANG]
        b.scripts += [[WAIT, answer()]] * 5
        asked = [tasks.create_task(stand.ask()) for _ in range(10)]
        await b.until(lambda: seen_by(a, b) == [5, 5])
        b.release()
        await b.until(lambda: sum(t.done() for t in asked) == 5)
        for _ in range(20):
            assert (await stand.ask()).body == ANSWER  # it has five running, the other none
        clock.jump(Timeouts().first_byte_s + 1)
        await clock.advance(0.5)
        replies = [await task for task in asked]
        assert sorted(r.status for r in replies) == [200] * 5 + [504] * 5
        assert {r.error["code"] for r in replies if r.status == 504} == {"worker_timeout"}
        assert seen_by(a, b) == [5, 25]  # a slow request isn't sent to the next one
        for _ in range(10):
            assert (await stand.ask()).body == ANSWER  # five failures: it is left out
        assert len(a.seen) == 5


# ---- who is left out, and comes back


async def test_one_that_is_down_is_left_out_and_readmitted():
    clock = ManualClock()
    port = free_port()
    async with scripted() as b:
        pools = one_pool(f"http://127.0.0.1:{port}", b.url)
        async with standing(b, clock=clock, pools=pools) as stand:
            down = stand.running.gateway.parts.fleet.workers[0]
            await b.until(lambda: down.ejected_until > clock.now())
            await clock.advance(0.9)
            for _ in range(10):
                assert (await stand.ask()).body == ANSWER
            async with scripted(port=port) as a:
                await clock.advance(1.1)
                await a.until(lambda: down.well)
                while not a.seen:
                    assert (await stand.ask()).body == ANSWER


async def test_a_failed_connect_costs_its_request_nothing():
    clock = ManualClock()
    async with scripted() as b, scripted() as a:
        pools = one_pool(a.url, b.url)
        async with standing(b, clock=clock, pools=pools) as stand:
            worker = stand.running.gateway.parts.fleet.workers[0]
            worker.endpoint.close()
            worker.endpoint.port = free_port()
            for _ in range(20):
                assert (await stand.ask()).body == ANSWER
            assert worker.ejected_until > clock.now()
            assert not worker.well
            assert len(b.seen) == 20
            worker.endpoint.port = a.port
            await clock.advance(1.0)  # it was well: it isn't asked only after ten seconds
            await a.until(lambda: worker.well)


async def test_five_failures_leave_one_out_until_its_time_is_over():
    clock = ManualClock()
    async with pair(clock) as (stand, a, _):
        a.default = [answer(b"{}", "500 Oh")]
        statuses = [(await stand.ask()).status for _ in range(30)]
        assert statuses.count(500) == len(a.seen) == 5
        await clock.advance(1.1)
        statuses = [(await stand.ask()).status for _ in range(30)]
        assert statuses.count(500) == 1  # one more try, and out it is again, for longer
        asked = a.asked
        await clock.advance(1.0)
        await a.until(lambda: a.asked > asked)  # its probe is answered, and means nothing
        await clock.advance(0.5)
        for _ in range(10):
            assert (await stand.ask()).status == 200
        assert len(a.seen) == 6
        a.default = [answer()]
        await clock.advance(1.0)
        for _ in range(10):
            assert (await stand.ask()).status == 200
        assert len(a.seen) > 6


async def test_a_clients_mistakes_leave_nobody_out():
    async with pair() as (stand, a, b):
        a.default = b.default = [answer(b"{}", "400 Bad Request")]
        for _ in range(20):
            assert (await stand.ask()).status == 400
        assert sorted(seen_by(a, b)) == [10, 10]


async def test_if_all_are_down_the_answer_says_so():
    pools = one_pool(*(f"http://127.0.0.1:{free_port()}" for _ in range(2)))
    async with scripted() as unused, standing(unused, pools=pools) as stand:
        got = await stand.ask()
        assert (got.status, got.error["code"]) == (502, "worker_unreachable")
        assert (await stand.get(b"/readyz")).status == 503


# ---- who steps in


@pytest.mark.parametrize("end", [CLOSE, RESET])
@pytest.mark.parametrize("said", [b"", STREAM_HEAD], ids=["nothing", "a head"])
async def test_another_answers_for_one_that_hangs_up(end: object, said: bytes):
    async with pair() as (stand, a, b):
        a.default = [said, end]
        b.default = streamed(delta("b"), DONE_EVENT)
        for _ in range(4):
            got = await stand.stream()
            assert (got.status, got.body, got.whole) == (200, delta("b") + DONE_EVENT, True)
        assert len(b.seen) == 4
        assert len(a.seen) >= 2


async def test_but_once_only():
    async with pair() as (stand, a, b):
        a.default = b.default = [CLOSE]
        got = await stand.ask()
        assert (got.status, got.error["code"]) == (502, "worker_hung_up")
        # each may have been met on a stale connection, which is tried once more on a fresh one
        assert sorted(seen_by(a, b)) in ([1, 1], [1, 2], [2, 2])


@pytest.mark.parametrize("status", ["429 No", "502 No", "503 No", "504 No"])
async def test_another_is_asked_when_one_says_not_now(status: str):
    async with pair() as (stand, a, b):
        a.default = [answer(b"{}", status, b"retry-after: 7")]
        for _ in range(4):
            got = await stand.ask()
            assert (got.status, got.body) == (200, ANSWER)
        b.default = a.default
        a.scripts.clear()
        got = await stand.ask()
        assert got.status == int(status[:3])
        assert got.values(b"retry-after") == [b"7"]


async def test_not_now_passes_if_the_other_is_known_to_be_down():
    port = free_port()
    async with scripted(default=[BUSY]) as a:
        pools = one_pool(f"http://127.0.0.1:{port}", a.url)
        async with standing(a, clock=ManualClock(), pools=pools) as stand:
            got = await stand.ask()
            assert (got.status, got.values(b"retry-after")) == (503, [b"7"])


@pytest.mark.parametrize("status", ["400 No", "404 No", "422 No", "500 No", "501 No"])
async def test_not_this_is_final(status: str):
    async with pair() as (stand, a, b):
        a.default = b.default = [answer(b"{}", status)]
        assert (await stand.ask()).status == int(status[:3])
        assert sum(seen_by(a, b)) == 1


async def test_after_the_first_byte_nobody_steps_in():
    async with pair() as (stand, a, b):
        a.default = b.default = [STREAM_HEAD, chunk(delta("a")), CLOSE]
        got = await stand.stream()
        assert not got.whole
        assert got.body.startswith(delta("a"))
        assert sum(seen_by(a, b)) == 1


async def test_a_refusal_of_stream_options_is_learnt_for_each():
    async with pair() as (stand, a, b):
        no = answer(b'{"error":"stream_options is unknown"}', "400 Bad Request")
        a.scripts.append([no])
        a.default = b.default = streamed(DONE_EVENT)
        for _ in range(6):
            assert (await stand.stream()).whole
        asked = [[b"stream_options" in seen.body for seen in w.seen] for w in (a, b)]
        assert asked[0][:2] == [True, False]
        assert not any(asked[0][2:])
        assert all(asked[1])


# ---- names that workers tell


def names(reply: Reply) -> list[str]:
    return [card["id"] for card in json.loads(reply.body)["data"]]


async def test_models_come_and_go_as_workers_list_them():
    clock = ManualClock()
    async with (
        scripted(model="a") as a,
        scripted(listing=[models("b", "both")]) as b,
        standing(a, b, clock=clock) as stand,
    ):
        assert names(await stand.get(b"/v1/models")) == ["a", "b", "both"]
        assert (await stand.ask(body("b"))).status == 200
        assert seen_by(a, b) == [0, 1]
        got = await stand.ask(body("new"))
        assert (got.status, got.error["code"]) == (404, "model_not_found")
        assert "a, b, both" in got.error["message"]

        a.listing = [models("both", "new")]
        asked = a.asked
        await clock.advance(10.1)
        await a.until(lambda: a.asked > asked)
        await a.until(lambda: "new" in stand.running.gateway.parts.fleet.models())
        assert names(await stand.get(b"/v1/models")) == ["b", "both", "new"]
        assert (await stand.ask(body("new"))).status == 200
        assert (await stand.ask(body("a"))).status == 404
        for _ in range(2):
            assert (await stand.ask(body("both"))).status == 200
        assert seen_by(a, b) == [2, 2]


async def test_a_model_may_be_one_that_a_silent_worker_has():
    clock = ManualClock()
    port = free_port()
    async with scripted(model="a") as a:
        urls = (WorkerSettings(url=a.url), WorkerSettings(url=f"http://127.0.0.1:{port}"))
        pools = (PoolSettings(name="p", workers=urls),)
        async with standing(a, clock=clock, pools=pools) as stand:
            assert (await stand.ask(body("a"))).status == 200
            assert (await stand.get(b"/readyz")).status == 200
            got = await stand.ask(body("late"))
            assert (got.status, got.error["code"]) == (503, "no_worker")
            assert got.values(b"retry-after") == [b"1"]
            async with scripted(model="late", port=port) as late:
                await clock.advance(1.1)
                await late.until(lambda: "late" in stand.running.gateway.parts.fleet.models())
                assert (await stand.ask(body("late"))).status == 200
                assert (await stand.ask(body("other"))).status == 404


async def test_a_worker_of_two_pools_is_one_worker():
    async with scripted(listing=[models("x", "y")]) as a:
        workers = (WorkerSettings(url=a.url),)
        pools = tuple(PoolSettings(name=n, model=n, workers=workers) for n in ("x", "y"))
        async with standing(a, clock=ManualClock(), pools=pools) as stand:
            for name in ("x", "y"):
                assert (await stand.ask(body(name))).status == 200
            assert a.asked == 1
            assert len(stand.running.gateway.parts.fleet.workers) == 1


async def test_ready_when_one_worker_is():
    clock = ManualClock()
    port = free_port()
    pools = (PoolSettings(name="p", workers=(WorkerSettings(url=f"http://127.0.0.1:{port}"),)),)
    async with scripted() as unused, standing(unused, clock=clock, pools=pools) as stand:
        fleet = stand.running.gateway.parts.fleet
        assert (await stand.get(b"/readyz")).status == 503
        assert (await stand.get(b"/livez")).status == 200
        # up, but loading its model, as llama.cpp tells it
        async with scripted(port=port, listing=[answer(b"{}", "503 Loading model")]) as worker:
            asked = worker.asked
            await clock.advance(1.1)
            await worker.until(lambda: worker.asked > asked)
            assert (await stand.get(b"/readyz")).status == 503
            worker.listing = None
            await clock.advance(1.1)
            await worker.until(fleet.ready)
            assert (await stand.get(b"/readyz")).status == 200
            assert (await stand.ask(path=CHAT)).status == 200
        for connection in list(fleet.workers[0].endpoint.idle):
            connection.close()
        await clock.advance(10.1)
        await worker.until(lambda: not fleet.ready())
        assert (await stand.get(b"/readyz")).status == 503
