"""How long a worker may take: each limit alone, on a clock that the test moves, without sockets."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from gateway.errors import UpstreamFailed, WorkerTimedOut
from gateway.workers.endpoint import Endpoint, Timeouts
from gateway.workers.upstream import Connection
from tests.support.clock import ManualClock

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Transport:
    """What a connection does to its socket."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = self.reading_paused = False

    def writelines(self, parts: Any) -> None:
        self.written += map(bytes, parts)

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False

    def abort(self) -> None:
        self.closed = True

    close = abort


class Receiver:
    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.done = False
        self.failure: UpstreamFailed | None = None

    def receive(self, call: Connection, chunks: list[bytes], *, done: bool) -> None:
        assert not self.done
        assert self.failure is None
        self.got += chunks
        self.done = done

    def lost(self, failure: UpstreamFailed) -> None:
        assert not self.done
        assert self.failure is None
        self.failure = failure


class Line:
    """An endpoint whose connections stand as soon as the test says so."""

    def __init__(self, **limits: float) -> None:
        self.clock = ManualClock()
        none = {"connect": 0.0, "first_byte": 0.0, "between_bytes": 0.0, "total": 0.0}
        self.endpoint = Endpoint(
            "worker",
            80,
            tls=None,
            timeouts=Timeouts(**(none | limits)),
            now=self.clock.now,
            spawn=self.spawn,
        )
        self.receiver = Receiver()
        self.cancelled = 0

    def spawn(self, connecting: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        connecting.close()
        return self  # type: ignore[return-value]

    def cancel(self) -> None:
        self.cancelled += 1

    def send(self, *, connect: bool = True) -> Connection:
        connection = self.endpoint.send((b"POST / HTTP/1.1\r\n\r\n",), self.receiver)
        if connect and connection._transport is None:
            connection.connection_made(Transport())  # type: ignore[arg-type]
        return connection

    def after(self, seconds: float) -> str:
        """What the receiver has been told by then; empty = nothing."""
        self.clock.jump(seconds)
        self.endpoint.sweep(self.clock.now())
        failure = self.receiver.failure
        if failure is None:
            return ""
        assert isinstance(failure, WorkerTimedOut)
        assert (failure.status, failure.code) == (504, "worker_timeout")
        assert not self.endpoint.busy
        return failure.message


def test_the_first_byte():
    line = Line(first_byte=10)
    call = line.send()
    assert not line.after(10)
    assert line.after(0.1) == "The worker gave no first byte within 10 s."
    assert call._transport.closed


def test_a_head_is_no_byte_of_the_body():
    line = Line(first_byte=10)
    line.send().data_received(HEAD)
    assert not line.after(9)
    assert line.after(2)


@pytest.mark.parametrize("limit", [{"first_byte": 10}, {"total": 10}])
def test_connecting_counts(limit: dict[str, float]):
    line = Line(**limit)
    line.send(connect=False)
    assert not line.after(10)
    assert line.after(0.1)
    assert line.cancelled == 1


def test_between_bytes():
    line = Line(first_byte=1000, between_bytes=10)
    call = line.send()
    assert not line.after(900)
    call.data_received(HEAD + b"a")
    for _ in range(5):
        assert not line.after(9)
        call.data_received(b"a")
    assert not line.after(10)
    assert line.after(0.1) == "The worker gave no further byte within 10 s."
    assert call._transport.closed


def test_a_client_that_doesnt_read_is_not_the_workers_fault():
    line = Line(between_bytes=10)
    call = line.send()
    call.data_received(HEAD + b"a")
    call.pause()
    assert call._transport.reading_paused
    assert not line.after(1000)
    call.resume()
    assert not line.after(10)  # counted from here
    assert line.after(0.1)


def test_in_all():
    line = Line(total=100, between_bytes=10)
    call = line.send()
    call.data_received(HEAD)
    for _ in range(11):
        call.data_received(b"a")
        assert not line.after(9)
    call.data_received(b"a")
    assert line.after(2) == "The worker gave no whole answer within 100 s."


def test_in_all_also_while_the_client_doesnt_read():
    line = Line(total=100)
    call = line.send()
    call.data_received(HEAD + b"a")
    call.pause()
    assert line.after(101)


def test_no_limit_is_no_limit():
    line = Line()
    call = line.send()
    assert not line.after(1e9)
    call.data_received(HEAD + b"a")
    assert not line.after(1e9)


def test_an_answer_in_time_is_one():
    line = Line(first_byte=10, between_bytes=10, total=10)
    line.send().data_received(WHOLE)
    assert not line.after(1e6)
    assert line.receiver.done


def test_each_request_of_a_connection_has_its_own_time():
    line = Line(first_byte=10, total=20, idle=100)
    call = line.send()
    for _ in range(5):
        assert not line.after(9)
        call.data_received(WHOLE)
        assert line.receiver.done
        line.receiver = Receiver()
        assert line.send() is call
    assert not line.after(10)
    assert line.after(0.1)


def test_one_retried_on_a_fresh_connection_keeps_its_time():
    line = Line(first_byte=10)
    call = line.send()
    call.data_received(WHOLE)
    line.receiver = Receiver()
    assert line.send() is call
    assert not line.after(6)
    call.connection_lost(None)
    call.connection_made(Transport())  # type: ignore[arg-type]
    assert call._transport.written
    assert not line.after(4)
    assert line.after(0.1)


def test_an_idle_connection_is_closed():
    line = Line(idle=4)
    call = line.send()
    call.data_received(WHOLE)
    assert not line.after(4)
    assert line.endpoint.idle == [call]
    assert not line.after(0.1)
    assert not line.endpoint.idle
    assert call._transport.closed
    call.connection_lost(None)


# ---- closes that are a habit of the worker, and those that aren't

STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"


def unsaid(line: Line, closes: int) -> None:
    """So many times, the worker closes right behind a stream."""
    for _ in range(closes):
        line.receiver = Receiver()
        call = line.send()
        call.data_received(STREAM)
        call.connection_lost(None)


def test_a_worker_that_closes_behind_streams_without_a_word_is_believed_the_third_time():
    line = Line(idle=4)
    unsaid(line, 2)
    line.receiver = Receiver()
    call = line.send()
    call.data_received(STREAM)
    assert line.endpoint.idle == [call]
    call.connection_lost(None)
    line.receiver = Receiver()
    call = line.send()
    call.data_received(STREAM)
    assert not line.endpoint.idle
    line.receiver = Receiver()
    line.send().data_received(WHOLE)
    assert line.endpoint.idle  # only streams are meant


def test_a_client_that_hangs_up_is_no_habit_of_the_worker():
    line = Line(idle=4)
    for _ in range(5):
        line.receiver = Receiver()
        call = line.send()
        call.data_received(STREAM)
        assert line.send() is call
        call.abort()
        call.connection_lost(None)
    assert line.endpoint.unsaid_closes == 0


def test_nor_is_a_close_that_was_announced():
    line = Line(idle=4)
    for _ in range(5):
        line.receiver = Receiver()
        call = line.send()
        call.data_received(STREAM.replace(b"transfer", b"connection: close\r\ntransfer"))
        call.connection_lost(None)
    assert line.endpoint.unsaid_closes == 0
