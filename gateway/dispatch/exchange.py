"""One live request from its whole body to its settled end, as callbacks.

No task, no future, no timer.

Promises: the sink hears one answer, whole or visibly broken; a request is tried at most at two
workers, the second time only before the first byte of an answer; every way out settles, once: the
call, the worker's place, the memory, the record.
"""

from gateway.dispatch import route as routes
from gateway.dispatch.answer import Answer, Failed, Streamed, answer_fields, answer_for, is_stream
from gateway.dispatch.desk import Desk
from gateway.errors import (
    GatewayError,
    NoWorker,
    Outcome,
    UpstreamFailed,
    WorkerHungUp,
    WorkerUnreachable,
)
from gateway.ports import Call, Part, Pool, ReplySink, Worker
from gateway.requests import CLIENT_ERROR, REDIRECTION, SERVER_ERROR, Record, RequestHead
from gateway.wire import multipart, openai

ATTEMPTS = 2
# Answers that say "not now" rather than "not this": another worker may do better.
RETRIED_STATUS = frozenset((429, 502, 503, 504))
# How workers refuse a field that they don't know.
REFUSING_STATUS = frozenset((400, 422))


class Exchange:
    """A request in hand.

    `gateway.ports.ReplySource` to its sink, `gateway.ports.Receiver` to its worker.
    """

    __slots__ = (
        "_answer",
        "_asked",
        "_begun",
        "_body",
        "_call",
        "_desk",
        "_facts",
        "_fields",
        "_form",
        "_head",
        "_held",
        "_paused",
        "_pool",
        "_route",
        "_settled",
        "_sink",
        "_trial",
        "_worker",
        "record",
    )

    def __init__(self, desk: Desk, sink: ReplySink, head: RequestHead) -> None:
        self._desk = desk
        self._sink = sink
        self._head = head
        self._route = routes.of_path(head.path)
        self._body = b""
        self._facts: openai.Facts | None = None
        self._held = 0
        self._asked = self._begun = self._paused = self._settled = self._trial = False
        self._call: Call | None = None
        self._worker: Worker | None = None
        self._answer: Answer | None = None
        self.record = Record(desk.new_id(), head.client_id, head.path, desk.now())
        desk.live += 1

    # the front calls

    def take(self, body: bytes, held: int) -> None:
        """The whole body: find its pool and send it. It took `held` bytes of the body memory."""
        self._body = body
        self._held = held
        record = self.record
        record.t0 = self._desk.now()
        record.bytes_in = len(body)
        try:
            self._pool = self._find_pool()
        except GatewayError as error:
            self.refuse(error)
            return
        self._fields = b"%bx-request-id: %b\r\n" % (self._head.forward, record.id)
        self._try(None, NoWorker(f"No worker serves {record.model} now.", retry_after_s=1.0))

    def refuse(self, error: GatewayError) -> None:
        """Answer with one of our own errors. Nothing of an answer may have been sent."""
        record = self.record
        record.status = error.status
        record.code = error.code
        self._sink.refuse(error, record.id)
        self._settle(error.outcome)

    def pause(self) -> None:
        """See `gateway.ports.ReplySource`. An answer that hasn't begun is paused as it begins."""
        self._paused = True
        if self._begun and self._call is not None:
            self._call.pause()

    def resume(self) -> None:
        """See `gateway.ports.ReplySource`."""
        self._paused = False
        if self._begun and self._call is not None:
            self._call.resume()

    def abort(self) -> None:
        """See `gateway.ports.ReplySource`."""
        if self._settled:
            return
        if self._call is not None:
            self._call.abort()
        answer = self._answer
        if self._begun and isinstance(answer, Streamed) and answer.whole(trusted=False):
            # Some clients close as soon as they have seen the end mark; they have it all.
            self._settle(_outcome(answer, self.record.status))
        else:
            self._settle(Outcome.CLIENT_GONE)

    # the worker's connection calls

    def receive(self, call: Call, chunks: list[bytes], *, done: bool) -> None:
        """See `gateway.ports.Receiver`."""
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        answer = self._answer
        if self._begun and not done and answer is not None:  # nearly every read of a stream
            out = answer.feed(data, done=False)
            if out:
                self.record.bytes_out += len(out)
                self._sink.write(out, last=False)
            return
        if done:
            self._call = None
        if answer is None:
            answer = self._opened(call, data, done=done)
        if answer is not None:
            self._feed(call, answer, data, done=done)

    def _opened(self, call: Call, data: bytes, *, done: bool) -> Answer | None:
        """How the answer will pass, at the first sight of it; None: it won't, or not yet."""
        if not data and not done and is_stream(call):
            return None  # until a byte of the body came, another worker may still answer
        if self._sent_again(call, done=done):
            return None
        self._answer = answer_for(call, self._route, strip=self._asked)
        return self._answer

    def _feed(self, call: Call, answer: Answer, data: bytes, *, done: bool) -> None:
        out = answer.feed(data, done=done)
        if done:
            self._finish(call, answer, out)
        elif out is not None:
            self._pass(call, answer, out, last=False)

    def _finish(self, call: Call, answer: Answer, out: bytes | None) -> None:
        """The worker has said all: pass on the last of it, or say that it isn't the whole."""
        self.record.t_last = self._desk.now()
        whole = answer.whole(trusted=not call.ends_by_close)
        if out and not whole and isinstance(answer, Streamed):
            out = answer.without_torn()
        if whole or out:
            self._pass(call, answer, out or b"", last=whole)
        if whole:
            self._release(None, call.status)
            self._settle(_outcome(answer, call.status))
        else:
            self._break(WorkerHungUp("The worker's stream stopped before its end."))

    def lost(self, failure: UpstreamFailed) -> None:
        """See `gateway.ports.Receiver`."""
        self._call = None
        answer = self._answer
        if self._begun and isinstance(answer, Streamed) and answer.whole(trusted=False):
            # The end mark has passed: the end of the framing is lost, not that of the answer.
            self._sink.write(b"", last=True)
            self._release(None, self.record.status)
            self._settle(_outcome(answer, self.record.status))
        else:
            self._break(failure)

    def _break(self, failure: UpstreamFailed) -> None:
        """The answer isn't whole: another worker's instead, an error, or a visible end."""
        if not self._begun:
            self._lost_before_its_answer(failure)
            return
        answer = self._answer
        if isinstance(answer, Streamed):
            event = self._route.dialect.event(failure, answer.last)
            if answer.torn():  # of an event too long to be held until it was whole
                event = b"\n\n" + event
            self._sink.write(event, last=False)
        self._sink.cut()
        self.record.code = failure.code
        self._release(failure, 0)
        stopped = failure.outcome is Outcome.STOPPED
        self._settle(Outcome.STOPPED if stopped else Outcome.STREAM_BROKEN)

    # sending

    def _find_pool(self) -> Pool:
        """Decode the body as deep as is needed.

        Raises:
            GatewayError: it can't be read, or names no model of ours.
        """
        record = self.record
        head = self._head
        if head.content_type[:10].lower() == b"multipart/":
            self._form = multipart.model_of(head.content_type, self._body)
            record.model = self._form[0]
        else:
            self._facts = facts = openai.read_facts(self._body)
            record.model = facts.model
            record.stream = facts.stream is True
        pool = self._desk.fleet.pool(record.model)
        if pool is None:
            raise self._desk.fleet.unknown(record.model)
        return pool

    def _try(self, tried: Worker | None, otherwise: GatewayError) -> None:
        """Send to a worker that isn't `tried`; without one the answer is `otherwise`."""
        worker = self._pool.choose(self._desk.now(), tried)
        if worker is None:
            self.refuse(otherwise)
        else:
            self.record.attempts += 1
            self._send(worker, may_ask=worker.takes_stream_options is not False)

    def _send(self, worker: Worker, *, may_ask: bool) -> None:
        """Send to `worker`; `may_ask`: with the wish for usage."""
        record = self.record
        try:
            body = self._body_for(worker, may_ask=may_ask)
        except GatewayError as error:  # it can be read, but not changed
            self.refuse(error)
            return
        self._worker = worker
        record.worker = worker.name
        record.t_sent = self._desk.now()
        record.t_last = 0.0
        self._call = worker.send(self._head.path, self._fields, body, self)

    def _body_for(self, worker: Worker, *, may_ask: bool) -> list[Part]:
        """The body with `worker`'s own model name and the wish for usage spliced in.

        Raises:
            GatewayError: it can't be changed.
        """
        record = self.record
        upstream = worker.upstream_model(record.model)
        name = None if upstream == record.model else upstream
        facts = self._facts
        self._asked = (
            may_ask
            and record.stream
            and self._route.asks_usage
            and facts is not None
            and not openai.wants_usage(facts)
        )
        if name is None and not self._asked:
            return [self._body]
        if facts is not None:
            return openai.splice(self._body, facts, model=name, ask_usage=self._asked)
        return self._form_with(name or upstream)

    def _form_with(self, model: str) -> list[Part]:
        """The multipart body with the worker's own model name in its field."""
        _, start, end = self._form
        view = memoryview(self._body)
        return [view[:start], model.encode(), view[end:]]

    def _sent_again(self, call: Call, *, done: bool) -> bool:
        """Whether, at the first sight of this answer, the request goes out again instead."""
        worker, status = self._worker, call.status
        if worker is not None and self._learn(worker, status):
            self._drop(call, done=done)
            self._send(worker, may_ask=False)
            return True
        if status in RETRIED_STATUS and self.record.attempts < ATTEMPTS:
            other = self._pool.choose(self._desk.now(), worker, well=True)
            if other is not None:
                self._drop(call, done=done)
                self.record.attempts += 1
                self._send(other, may_ask=other.takes_stream_options is not False)
                return True
        return False

    def _learn(self, worker: Worker, status: int) -> bool:
        """Note whether the worker takes `stream_options`.

        Returns whether to ask it again without: it may have refused them.
        """
        if self._trial:  # this answers the same request without our field
            self._trial = False
            if status < REDIRECTION:
                worker.takes_stream_options = False
        elif self._asked and worker.takes_stream_options is None:
            if status < REDIRECTION:
                worker.takes_stream_options = True
            self._trial = status in REFUSING_STATUS
        return self._trial

    def _drop(self, call: Call, *, done: bool) -> None:
        """Have no more of an answer that won't be passed on."""
        self._call = None
        if not done:
            call.abort()
        self._release(None, call.status)

    def _lost_before_its_answer(self, failure: UpstreamFailed) -> None:
        """Nothing was passed on yet.

        Another worker may answer, unless this one took too long already, or has said no and was
        only lost in explaining it.
        """
        worker, answer = self._worker, self._answer
        self._answer = None
        self._trial = False
        self._release(failure, 0)
        may = isinstance(failure, WorkerUnreachable | WorkerHungUp) and not isinstance(
            answer, Failed
        )
        if may and self.record.attempts < ATTEMPTS:
            self._try(worker, failure)
        else:
            self.refuse(failure)

    # passing on and settling

    def _pass(self, call: Call, answer: Answer, data: bytes, *, last: bool) -> None:
        """Hand `data` to the sink; the first time with the head."""
        record = self.record
        record.bytes_out += len(data)
        if self._begun:
            if data or last:
                self._sink.write(data, last=last)
            return
        self._begun = True
        self._drop_body()
        record.t_first = record.t_last or self._desk.now()
        record.status = call.status
        fields = answer_fields(call, record.id, rewritten=answer.rewritten)
        call.fields = []  # thousands of streams may be open, and nobody asks again
        self._sink.begin(call.status, fields, answer.length, data, last=last)
        if self._paused and self._call is not None:
            self._call.pause()

    def _drop_body(self) -> None:
        """Nothing can be sent again. The facts go too: they hold on to the body they are of."""
        self._body = self._fields = b""
        self._facts = None
        if self._held:
            self._desk.memory.give_back(self._held)
            self._held = 0

    def _release(self, failure: UpstreamFailed | None, status: int) -> None:
        """Give the worker its place back and tell it how it went."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.release(failure, status)

    def _settle(self, outcome: Outcome) -> None:
        """The end, whatever way it came; only the first counts."""
        if self._settled:
            return
        self._settled = True
        self._release(None, 0)
        self._drop_body()
        record = self.record
        if self._answer is not None:
            record.usage = self._answer.usage
            self._answer = None
        record.outcome = outcome
        record.t_end = self._desk.now()
        self._desk.live -= 1
        self._desk.log.ended(record)


def _outcome(answer: Answer, status: int) -> Outcome:
    """How a request ended whose answer passed whole."""
    if not answer.failed:
        return Outcome.OK
    refused = CLIENT_ERROR <= status < SERVER_ERROR
    return Outcome.WORKER_REFUSED if refused else Outcome.WORKER_ERROR
