"""One request between played workers and a played client: what is tried, passed on, remembered."""

import json

import pytest

from gateway.errors import (
    BodyTimedOut,
    Outcome,
    WorkerHungUp,
    WorkerSpokeNonsense,
    WorkerTimedOut,
    WorkerUnreachable,
)
from tests.support.fakes import JSON, SSE, Played, Worker

STREAM = b'{"model": "m", "stream": true}'
PLAIN = b'{"model": "m"}'
ASKING = b'"stream_options":{"include_usage":true}'
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
GONE = WorkerHungUp("The worker closed the connection before its answer was whole.")
REFUSED = WorkerUnreachable("The worker could not be reached: connection refused.")

ENDS = {
    b"/v1/chat/completions": DONE,
    b"/v1/completions": DONE,
    b"/v1/responses": b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
    b"/v1/messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
}


def error_event(body: bytes) -> dict:
    """The data of the event that ends a broken stream; the one before it must be whole."""
    before, _, last = body.removesuffix(b"\n\n").rpartition(b"\n\n")
    assert b"error" in last
    assert not before or b"\n\ndata: {\n" not in before
    return json.loads(last.rpartition(b"data: ")[2])


class TestAnswers:
    def test_a_plain_answer_passes_as_it_came(self):
        p = Played().take(PLAIN)
        p.call.head(200, [*JSON, (b"X-Own", b"1"), (b"Content-Length", b"4")], length=4)
        p.call.tell(b"{}", b" ")
        p.call.tell(b" ", done=True)
        assert p.sink.body == b"{}  "
        assert (p.sink.length, p.sink.end) == (4, "whole")
        assert p.sink.fields == [*JSON, (b"X-Own", b"1"), (b"x-request-id", p.record.id)]
        assert p.record.outcome is Outcome.OK
        p.check_settled()

    def test_usage_that_only_we_asked_for_is_read_and_taken_out(self):
        p = Played().take(STREAM)
        assert ASKING in p.call.body
        call = p.call.head(200, SSE)
        call.tell(DELTA, USAGE)
        call.tell(DONE, done=True)
        assert p.sink.body == DELTA + DONE
        assert p.record.usage.output_tokens == 2

    def test_a_pause_before_the_answer_holds_when_it_begins(self):
        p = Played()
        p.exchange.pause()
        p.take(STREAM)
        call = p.call.head(200, SSE)
        assert not call.paused  # its head is wanted
        call.tell(DELTA)
        assert call.paused
        p.exchange.resume()
        assert not call.paused

    def test_a_pause_holds_over_a_second_attempt(self):
        p = Played(Worker("a"), Worker("b"))
        p.take(STREAM)
        p.exchange.pause()
        p.call.lose(GONE)
        call = p.call.head(200, SSE)
        call.tell(DELTA)
        assert call.paused

    def test_the_memory_of_a_body_is_free_once_it_cant_be_sent_again(self):
        p = Played().take(b'{"model": "m", "input": "%b"}' % (b"x" * 100_000))
        assert p.memory.held > 100_000
        p.call.head(200, JSON).tell(b"{")
        assert p.memory.held == 0


class TestBrokenStreams:
    @pytest.mark.parametrize("path", ENDS)
    def test_the_event_that_was_torn_is_not_glued_to_the_error(self, path):
        p = Played(path=path).take(STREAM)
        call = p.call.head(200, SSE)
        call.tell(b'data: {"x":1}\n\ndata: {"to')
        call.lose(GONE)
        assert p.sink.body.startswith(b'data: {"x":1}\n\n')
        assert b"to" not in p.sink.body.removeprefix(b'data: {"x":1}\n\n').split(b"{")[0]
        assert "closed the connection" in json.dumps(error_event(p.sink.body))
        assert p.sink.end == "cut"
        assert p.record.outcome is Outcome.STREAM_BROKEN
        p.check_settled()

    @pytest.mark.parametrize("path", ENDS)
    @pytest.mark.parametrize("by_close", [False, True])
    def test_a_torn_event_at_the_end_of_the_framing(self, path, by_close):
        p = Played(path=path).take(STREAM)
        call = p.call.head(200, SSE, by_close=by_close)
        call.tell(b'data: {"x":1}\n\ndata: {"to')
        call.tell(done=True)
        assert b'"to' not in p.sink.body
        error_event(p.sink.body)
        assert p.sink.end == "cut"

    @pytest.mark.parametrize(("path", "end"), ENDS.items())
    def test_an_end_mark_without_its_blank_line_is_an_end(self, path, end):
        p = Played(path=path).take(STREAM)
        call = p.call.head(200, SSE)
        call.tell(end.removesuffix(b"\n\n"))
        call.tell(done=True)
        assert p.sink.body == end.removesuffix(b"\n\n")
        assert p.sink.end == "whole"

    @pytest.mark.parametrize(("path", "end"), ENDS.items())
    def test_lost_behind_the_end_mark_is_a_clean_end(self, path, end):
        p = Played(path=path).take(STREAM)
        call = p.call.head(200, SSE)
        call.tell(end)
        call.lose(GONE)
        assert (p.sink.body, p.sink.end) == (end, "whole")
        assert p.record.outcome is Outcome.OK
        assert p.workers[0].judged == [(None, 200)]

    def test_an_event_too_long_to_be_held_is_closed_before_the_error(self):
        p = Played().take(STREAM)
        call = p.call.head(200, SSE)
        call.tell(b'data: {"b64":"' + b"x" * (1 << 20))
        call.lose(GONE)
        torn, blank, error = p.sink.body.partition(b"\n\n")
        assert torn.endswith(b"xxx")
        assert blank
        assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "worker_hung_up"

    def test_a_stream_of_an_unknown_kind_ends_as_its_framing_says(self):
        for by_close, end in ((False, "whole"), (True, "cut")):
            p = Played(path=b"/v1/audio/transcriptions").take(STREAM)
            p.call.head(200, SSE, by_close=by_close).tell(b"data: 1\n\n", done=True)
            assert p.sink.end == end

    def test_its_end_mark_is_known_even_so(self):
        p = Played(path=b"/v1/audio/transcriptions").take(STREAM)
        call = p.call.head(200, SSE, by_close=True)
        call.tell(b'data: {"type":"transcript.text.done"}\n\n', done=True)
        assert p.sink.end == "whole"

    def test_a_broken_plain_answer_is_cut(self):
        p = Played().take(PLAIN)
        p.call.head(200, JSON, length=10).tell(b"{")
        p.call.lose(GONE)
        assert (p.sink.body, p.sink.end) == (b"{", "cut")


class TestAttempts:
    @pytest.mark.parametrize("failure", [GONE, REFUSED])
    def test_another_worker_answers_for_one_that_is_lost_before_the_first_byte(self, failure):
        p = Played(Worker("a"), Worker("b", upstream="theirs")).take(PLAIN)
        p.call.lose(failure)
        assert p.call.worker.name == "b"
        assert json.loads(p.call.body) == {"model": "theirs"}
        p.call.head(200, JSON).tell(b"{}", done=True)
        assert p.record.attempts == 2
        assert (p.record.worker, p.record.outcome) == ("b", Outcome.OK)
        assert p.workers[0].judged == [(failure, 0)]

    @pytest.mark.parametrize(
        "failure", [WorkerTimedOut("no first byte"), WorkerSpokeNonsense("not HTTP")]
    )
    def test_one_that_took_too_long_or_spoke_nonsense_is_not_followed_by_another(self, failure):
        p = Played(Worker("a"), Worker("b")).take(PLAIN)
        p.call.lose(failure)
        assert p.sink.refused is failure
        p.check_settled()

    def test_twice_is_enough(self):
        p = Played(Worker("a"), Worker("b"), Worker("c")).take(PLAIN)
        p.call.lose(GONE)
        p.call.lose(GONE)
        assert p.sink.refused is GONE
        assert [len(w.calls) for w in p.workers] == [1, 1, 0]

    @pytest.mark.parametrize("status", [429, 502, 503, 504])
    def test_not_now_is_asked_elsewhere(self, status):
        p = Played(Worker("a"), Worker("b")).take(PLAIN)
        p.call.head(status, JSON).tell(b"", done=False)
        assert p.call.worker.name == "b"
        p.call.head(status, [*JSON, (b"retry-after", b"7")]).tell(b"{}", done=True)
        assert p.sink.status == status
        assert (b"retry-after", b"7") in p.sink.fields
        refused = status < 500
        assert p.record.outcome is (Outcome.WORKER_REFUSED if refused else Outcome.WORKER_ERROR)

    def test_not_now_passes_if_the_others_are_left_out(self):
        a, b = Worker("a"), Worker("b")
        b.ejected_until = 100.0
        p = Played(a, b).take(PLAIN)
        p.call.head(503, [*JSON, (b"retry-after", b"7")]).tell(b"{}", done=True)
        assert p.sink.status == 503
        assert not b.calls

    @pytest.mark.parametrize("status", [400, 401, 404, 422, 500])
    def test_not_this_is_final(self, status):
        p = Played(Worker("a"), Worker("b")).take(PLAIN)
        p.call.head(status, JSON).tell(b'{"error":{"message":"no"}}', done=True)
        assert p.sink.status == status
        assert not p.workers[1].calls

    def test_a_refusal_that_breaks_off_is_not_asked_elsewhere(self):
        p = Played(Worker("a"), Worker("b")).take(PLAIN)
        call = p.call.head(500, JSON, length=100)
        call.tell(b'{"error"')
        call.lose(GONE)
        assert p.sink.refused is GONE
        assert not p.workers[1].calls

    def test_an_empty_stream_is_asked_elsewhere(self):
        p = Played(Worker("a"), Worker("b")).take(STREAM)
        p.call.head(200, SSE).tell(done=True)
        p.call.head(200, SSE).tell(DONE, done=True)
        assert (p.sink.body, p.sink.end) == (DONE, "whole")
        assert p.record.t_last >= p.record.t_sent

    def test_after_the_first_byte_there_is_no_other(self):
        p = Played(Worker("a"), Worker("b")).take(STREAM)
        p.call.head(200, SSE).tell(DELTA)
        p.call.lose(REFUSED)
        assert p.sink.end == "cut"
        assert not p.workers[1].calls


class TestLearning:
    def test_what_a_worker_refuses_is_left_out_and_remembered(self):
        worker = Worker()
        p = Played(worker).take(STREAM)
        p.call.head(400, JSON).tell(b"{}", done=True)
        assert ASKING not in p.call.body
        p.call.head(200, SSE).tell(USAGE, DONE, done=True)
        assert p.sink.body == USAGE + DONE  # not ours to take out: it came unasked
        assert worker.takes_stream_options is False
        assert p.record.attempts == 1
        p = Played(worker).take(STREAM)
        assert ASKING not in p.call.body

    def test_a_refusal_for_the_clients_fault_passes_and_teaches_nothing(self):
        worker = Worker()
        p = Played(worker).take(STREAM)
        p.call.head(400, JSON).tell(b"{}", done=True)
        p.call.head(400, JSON).tell(b'{"error":{"message":"bad"}}', done=True)
        assert p.sink.status == 400
        assert worker.takes_stream_options is None
        p.check_settled()

    def test_once_it_was_taken_nothing_is_sent_twice(self):
        worker = Worker()
        Played(worker).take(STREAM).call.head(200, SSE).tell(DONE, done=True)
        assert worker.takes_stream_options is True
        p = Played(worker).take(STREAM)
        p.call.head(400, JSON).tell(b"{}", done=True)
        assert p.sink.status == 400
        assert len(worker.calls) == 2

    def test_a_trial_that_another_worker_ends_teaches_nothing_of_that_one(self):
        a, b = Worker("a"), Worker("b")
        p = Played(a, b).take(STREAM)
        p.call.head(400, JSON).tell(b"{}", done=True)
        p.call.lose(GONE)
        assert p.call.worker is b
        assert ASKING in p.call.body
        p.call.head(200, SSE).tell(DONE, done=True)
        assert a.takes_stream_options is None
        assert b.takes_stream_options is True


class TestRefusals:
    def test_a_body_that_can_be_read_but_not_changed(self):
        body = b'{"model": "m", "\xff": 1, "x": {"model": "y"}}'
        p = Played(Worker(upstream="theirs")).take(body)
        assert p.sink.status == 400
        assert p.record.outcome is Outcome.BAD_REQUEST
        p.check_settled()

    def test_the_same_at_the_second_worker(self):
        body = b'{"model": "m", "\xff": 1, "x": {"model": "y"}}'
        p = Played(Worker("a"), Worker("b", upstream="theirs")).take(body)
        p.call.head(503, JSON).tell(b"{}", done=True)
        assert p.sink.status == 400
        p.check_settled()

    def test_before_its_body(self):
        p = Played()
        p.exchange.refuse(BodyTimedOut("The request's body did not arrive in time."))
        assert (p.sink.end, p.record.status) == ("refused", 408)
        p.check_settled()

    def test_a_client_that_leaves_twice_leaves_once(self):
        p = Played().take(STREAM)
        p.sink.left = True
        p.exchange.abort()
        p.exchange.abort()
        assert p.record.outcome is Outcome.CLIENT_GONE
        assert p.workers[0].judged == [(None, 0)]
        p.check_settled()


class TestTimes:
    def test_they_are_of_the_attempt_that_answered(self):
        p = Played(Worker("a"), Worker("b")).take(STREAM)
        p.time = 2.0
        p.call.head(200, SSE).tell(done=True)  # empty: asked elsewhere
        p.time = 3.0
        p.call.head(200, SSE).tell(DELTA)
        p.time = 4.0
        p.call.lose(GONE)
        record = p.record
        assert (record.t0, record.t_sent, record.t_first) == (1.0, 2.0, 3.0)
        assert (record.t_last, record.t_end) == (0.0, 4.0)
