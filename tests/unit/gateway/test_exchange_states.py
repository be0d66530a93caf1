"""One request through any order of events: one answer, one end, everything given back once.

The client, the workers and the framing are played; after every event the contract of each port is
checked, by the fakes themselves and by the invariants here.
"""

import json

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.errors import (
    BodyTimedOut,
    Outcome,
    WorkerHungUp,
    WorkerSpokeNonsense,
    WorkerTimedOut,
    WorkerUnreachable,
)
from tests.support.fakes import JSON, SSE, Played, Worker

PATHS = (
    b"/v1/chat/completions",
    b"/v1/completions",
    b"/v1/embeddings",
    b"/v1/responses",
    b"/v1/messages",
    b"/v1/audio/transcriptions",
)
LARGE = "x" * (70 << 10)
BODIES = {
    "stream": json.dumps({"model": "m", "stream": True}).encode(),
    "plain": json.dumps({"model": "m"}).encode(),
    "large stream": json.dumps({"model": "m", "input": LARGE, "stream": True}).encode(),
    "unknown model": json.dumps({"model": "unknown", "input": LARGE}).encode(),
    "only readable unchanged": b'{"model": "m", "\xff": 1, "stream": true, "x": {"model": "y"}}',
    "not JSON": b"{" + LARGE.encode(),
}
PIECES = {
    "nothing": b"",
    "done": b"data: [DONE]\n\n",
    "half done": b"data: [DO",
    "delta": b'data: {"choices":[{"finish_reason":null}]}\n\n',
    "finish": b'data: {"choices":[{"finish_reason":"stop"}]}\n\n',
    "usage": b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n',
    "message_stop": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    "completed": b'data: {"type":"response.completed"}\n\n',
    "error": b'{"error":{"message":"no"}}',
    "whole": b'{"usage":{"prompt_tokens":1}}',
    "event end": b"\n\n",
    "1 MB": b"x" * (1 << 20),
    "300 KB": b"x" * (300 << 10),
}
END_MARKS = (b"[DONE]", b'"stop"', b"message_stop", b"response.completed")
STATUSES = (200, 200, 200, 204, 302, 400, 404, 422, 429, 500, 502, 503, 504)
FAILURES = (
    WorkerUnreachable("The worker could not be reached: refused."),
    WorkerHungUp("The worker closed the connection before its answer was whole."),
    WorkerSpokeNonsense("The worker's answer isn't valid HTTP."),
    WorkerTimedOut("The worker gave no first byte within 1 s."),
)


class Events(RuleBasedStateMachine):
    """Whatever may happen to a request."""

    @initialize(
        path=st.sampled_from(PATHS),
        workers=st.lists(
            st.tuples(
                st.sampled_from((None, "other")),
                st.sampled_from((None, True, False)),
                st.sampled_from((0.0, 5.0)),
            ),
            min_size=1,
            max_size=3,
        ),
        reader=st.sampled_from(("keeps up", "pauses at every write")),
        body=st.sampled_from((*sorted(BODIES), "stream", "plain", "stream", "plain", None)),
    )
    def start(self, path, workers, reader, body):
        played = []
        for i, (upstream, takes, ejected_until) in enumerate(workers):
            worker = Worker(f"w{i}", upstream=upstream)
            worker.takes_stream_options = takes
            worker.ejected_until = ejected_until
            played.append(worker)
        self.played = Played(*played, path=path)
        self.client_paused = False
        self.taken = False
        if reader != "keeps up":
            self.played.sink.on_write = self.pause
        if body is not None:
            self.take(body)

    # the client's side

    @precondition(lambda self: not self.over)
    @rule()
    def pause(self):
        self.client_paused = True
        self.played.exchange.pause()

    @precondition(lambda self: not self.over)
    @rule()
    def resume(self):
        self.client_paused = False
        self.played.exchange.resume()

    @precondition(lambda self: not self.over)
    @rule(really=st.sampled_from((False, False, False, True)))
    def hang_up(self, really):
        if really:
            self.played.sink.left = True
            self.played.exchange.abort()

    @precondition(lambda self: not self.taken and not self.over)
    @rule()
    def refuse(self):
        self.played.exchange.refuse(BodyTimedOut("The request's body did not arrive in time."))

    @precondition(lambda self: not self.taken and not self.over)
    @rule(body=st.sampled_from(sorted(BODIES)))
    def take_later(self, body):
        self.take(body)

    def take(self, body):
        self.taken = True
        self.played.take(BODIES[body])

    # the worker's side

    @precondition(lambda self: self.call is not None)
    @rule(
        status=st.sampled_from(STATUSES),
        fields=st.sampled_from((SSE, JSON, [*JSON, (b"retry-after", b"7")])),
        by_close=st.booleans(),
        chunks=st.lists(st.sampled_from(sorted(PIECES)), max_size=3),
        done=st.booleans(),
    )
    def answer_somehow(self, status, fields, by_close, chunks, done):
        self.answer(status, fields, by_close, chunks, done)

    def answer(self, status, fields, by_close, chunks, done):
        call = self.call
        if not call.status:
            call.head(status, fields, by_close=by_close)
        call.tell(*(PIECES[name] for name in chunks), done=done)

    @precondition(lambda self: self.call is not None)
    @rule(
        status=st.sampled_from(STATUSES),
        chunks=st.lists(st.sampled_from(sorted(PIECES)), max_size=2),
        by_close=st.booleans(),
        done=st.booleans(),
    )
    def stream(self, status, chunks, by_close, done):
        self.answer(status, SSE, by_close, chunks, done)

    @precondition(lambda self: self.call is not None and self.call.status)
    @rule(end=st.sampled_from(("done", "message_stop", "completed", "whole", "half done")))
    def finish(self, end):
        self.call.tell(PIECES[end], done=True)

    @precondition(lambda self: self.call is not None)
    @rule(failure=st.sampled_from(FAILURES))
    def lose(self, failure):
        self.call.lose(failure)

    @rule(seconds=st.floats(0, 10))
    def time_passes(self, seconds):
        self.played.time += seconds

    # what must hold

    @property
    def over(self):
        return bool(self.played.log.records)

    @property
    def call(self):
        calls = [c for w in self.played.workers for c in w.calls if c.open]
        assert len(calls) <= 1
        return calls[0] if calls else None

    @invariant()
    def one_place_for_one_call(self):
        running = sum(w.running for w in self.played.workers)
        assert running == (self.call is not None)
        if self.taken and not self.over:
            assert self.call is not None  # it waits for something

    @invariant()
    def nobody_is_bothered_too_often(self):
        sends = sum(len(w.calls) for w in self.played.workers)
        assert sends <= 4  # two workers, each asked once more without what it refused
        assert len([w for w in self.played.workers if w.calls]) <= 2

    @invariant()
    def a_pause_reaches_the_worker(self):
        call = self.call
        if call is not None and self.played.sink.begun:
            assert call.paused == self.client_paused

    @invariant()
    def settled_means_all_of_it(self):
        if not self.over:
            assert self.played.desk.live == 1
            assert not self.played.sink.end
            return
        self.played.check_settled()
        self.record_is_true()

    def record_is_true(self):
        record, sink = self.played.record, self.played.sink
        if sink.left:  # some close as soon as they have seen the end mark
            had_it_all = any(mark in sink.body for mark in END_MARKS)
            assert record.outcome is Outcome.CLIENT_GONE or (
                record.outcome is Outcome.OK and had_it_all
            )
        elif sink.end == "refused":
            assert record.status == sink.refused.status
            assert record.outcome is sink.refused.outcome
        elif sink.end == "cut":
            assert record.outcome is Outcome.STREAM_BROKEN
            assert record.code
        else:
            ends = {4: Outcome.WORKER_REFUSED, 5: Outcome.WORKER_ERROR}
            assert record.outcome is ends.get(sink.status // 100, Outcome.OK)
        assert record.t0 <= record.t_end
        if record.t_sent:
            assert record.t0 <= record.t_sent <= record.t_end
        for t in (record.t_first, record.t_last):
            assert not t or record.t_sent <= t <= record.t_end

    def teardown(self):
        if hasattr(self, "played") and not self.over:
            self.hang_up(really=True)
            self.played.check_settled()


class ManyEvents(Events):
    """The same for minutes, new ones each time."""


SETTINGS = settings(
    max_examples=300,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
TestEvents = Events.TestCase
TestEvents.settings = SETTINGS
TestManyEvents = ManyEvents.TestCase
TestManyEvents.settings = settings(SETTINGS, max_examples=5000, derandomize=False)
TestManyEvents.pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
