"""The lane beside aiohttp alone, on requests as no good client sends them.

Promise: whatever bytes a client sends, and however they are cut, the answers, the end of the
connection and the requests that reach a worker are those of aiohttp alone.
"""

from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.corpus import fields, lengths, lines, sequences, transfers
from tests.integration.corpus.parts import BODY, HIDDEN_BODY, Case, plain, post_with
from tests.support.delivery import NEXT
from tests.support.judge import Delivery, Judge, borders, by_bytes, cut, deliveries, in_two, judge

CASES = [
    *lengths.CASES,
    *transfers.CASES,
    *fields.CASES,
    *lines.CASES,
    *sequences.CASES,
]
SHORT_BYTES = 400  # up to here a case is also sent byte by byte


@pytest.fixture(scope="module")
def judging() -> Iterator[Judge]:
    with judge() as one:
        yield one


def test_names_are_unique():
    assert len({case.name for case in CASES}) == len(CASES) > 300


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_outcome_however_it_is_cut(judging: Judge, case: Case):
    ways = deliveries(case.wire)
    if len(case.wire) < SHORT_BYTES:
        ways.append(by_bytes(case.wire))

    outcomes = judging.check(ways, in_two(case.wire + NEXT))

    assert not any(body == HIDDEN_BODY for o in outcomes for _, _, body in o.arrived)
    assert max((len(o.arrived), o.resumed) for o in outcomes) == (case.reaches, case.resumes)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_outcome_behind_a_good_request(judging: Judge, case: Case):
    good = plain(body=BODY + b" ")
    wire = good + case.wire
    at = len(good)
    ways: list[Delivery] = [
        (good, case.wire, NEXT),
        (wire, NEXT),
        (wire + NEXT,),
        (good, case.wire + NEXT),
    ]
    ways += [(wire[:n], wire[n:], NEXT) for n in (at - 1, at + 1, at + 30)]
    ways.append((*cut(wire, borders(wire)), NEXT))

    outcomes = judging.check(ways, in_two(wire + NEXT))

    assert not any(body == HIDDEN_BODY for o in outcomes for _, _, body in o.arrived)
    most = max(len(o.arrived) for o in outcomes)
    assert most == case.reaches + 1 or (1 <= most <= case.reaches and not case.resumes)


def test_same_outcome_around_a_large_body(judging: Judge):
    """The lane reads it by a protocol of its own."""
    large = plain(body=b'{"model":"m","messages":["%b"]}' % (b"x" * 200_000))
    wire = large + plain() + b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
    head, end = large.index(b"\r\n\r\n") + 4, len(large)
    cuts = (head - 1, head, head + 1, head + 70_000, end - 1, end, end + 1, end + 50)
    ways: list[Delivery] = [(wire, NEXT), *((wire[:at], wire[at:], NEXT) for at in cuts)]
    ways.append((*cut(wire, cuts), NEXT))
    ways.append((*cut(wire, range(10_000, end, 10_000)), NEXT))

    for outcome in judging.check(ways):
        assert outcome.statuses[:3] == [200] * 3
        assert [len(body) for _, _, body in outcome.arrived] == [end - head, len(BODY)]


def test_a_large_body_that_ends_early(judging: Judge):
    large = plain(body=b'{"model":"m","messages":["%b"]}' % (b"x" * 200_000))
    for missing in (1, 1000, 150_000):
        (outcome,) = judging.check([(large[:-missing],)])
        assert outcome.statuses == [408]
        assert not outcome.arrived


# Mutated requests

_SEEDS = (
    plain(),
    plain(b"connection: close"),
    plain(b"user-agent: a", b"accept: */*", b"authorization: Bearer k", b"x-a:  b"),
    plain() * 3,
    plain(line=b"POST /v1/completions?a=b HTTP/1.1"),
    post_with(b"transfer-encoding: chunked", body=b"1b\r\n%b\r\n0\r\n\r\n" % BODY),
    plain() + b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n" + plain(),
)
_WORDS = (
    *(
        b"\r\n",
        b"\r",
        b"\n",
        b"\r\n\r\n",
        b"\0",
        b" ",
        b"\t",
        b":",
        b",",
        b";",
        b"\x7f",
        b"\x80",
        b"\xff",
    ),
    *(b"POST", b"GET", b"HTTP/1.0", b"HTTP/1.1", b"/v1/completions", b"/", b"?", b"%2e"),
    *(
        b"content-length: 5\r\n",
        b"Content-Length:27\r\n",
        b"content-length: 0\r\n",
        b"5",
        b"0",
        b"+",
    ),
    *(b"transfer-encoding: chunked\r\n", b"transfer-encoding: identity\r\n", b"chunked"),
    *(
        b"host: y\r\n",
        b"connection: close\r\n",
        b"connection: x-a\r\n",
        b"close",
        b"upgrade: tcp\r\n",
    ),
    *(
        b"expect: 100-continue\r\n",
        b"te: trailers\r\n",
        b"x: y\r\n",
        b" folded\r\n",
        b"user-agent: z\r\n",
    ),
    *(b"0\r\n\r\n", b"5\r\nhello\r\n", BODY, plain()),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid request, or a few, after some accidents."""
    wire = draw(st.sampled_from(_SEEDS))
    for _ in range(draw(st.integers(1, 4))):
        a, b = sorted((draw(st.integers(0, len(wire))), draw(st.integers(0, len(wire)))))
        b = min(b, a + draw(st.sampled_from((1, 2, 8, 60))))
        match draw(st.sampled_from(("insert", "replace", "delete", "double", "move"))):
            case "insert":
                wire = wire[:a] + draw(st.sampled_from(_WORDS)) + wire[a:]
            case "replace":
                wire = wire[:a] + draw(st.binary(min_size=1, max_size=2)) + wire[b:]
            case "delete":
                wire = wire[:a] + wire[b:]
            case "double":
                wire = wire[:b] + wire[a:]
            case "move":
                to = draw(st.integers(0, len(wire)))
                part, wire = wire[a:b], wire[:a] + wire[b:]
                wire = wire[:to] + part + wire[to:]
    return wire


def _fuzz(judging: Judge, wire: bytes, cuts: list[int]) -> None:
    ways: list[Delivery] = [
        (wire, NEXT),
        (*cut(wire, sorted({c % (len(wire) + 1) for c in cuts})), NEXT),
    ]
    judging.check(ways, chain((by_bytes(wire), (wire + NEXT,)), in_two(wire + NEXT)))


_cuts = st.lists(st.integers(0, 2000), max_size=4)


@given(wire=mutated(), cuts=_cuts)
@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_same_outcome_of_mutated_requests(judging: Judge, wire: bytes, cuts: list[int]):
    _fuzz(judging, wire, cuts)


@pytest.mark.long
@pytest.mark.timeout(1200)
@given(wire=mutated(), cuts=_cuts)
@settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))
def test_same_outcome_of_many_mutated_requests(judging: Judge, wire: bytes, cuts: list[int]):
    _fuzz(judging, wire, cuts)
