"""The tests: each puts one kind of load on one target and returns its figures.

A figure is a number under a name that carries its unit; report.py takes medians of them. A test
leaves the mock as it found it for the next: `answer_with()` states all it needs.
"""

import time
from dataclasses import dataclass, replace
from functools import partial

from stand import TargetError

CHUNKS = 128
EVENTS = CHUNKS + 2  # the usage event and [DONE]
HANG_UP_LIMIT_S = 2.0


@dataclass(frozen=True)
class Effort:
    """How much of everything."""

    rounds: int = 5
    seconds: float = 2.0  # of each saturating load
    warm_s: float = 0.5
    waves: int = 4  # of the paced streams
    firsts: int = 24  # single streams, for the time to the first token
    idle_s: float = 10.0
    slow: int = 2000
    slow_chunks: int = 24  # 500 ms apart
    big: int = 20
    limit_s: float = 2400.0  # of the whole run


FULL = Effort()
QUICK = replace(
    FULL, rounds=1, seconds=0.6, warm_s=0.2, waves=1, firsts=6, idle_s=1.0, slow=400,
    slow_chunks=5, big=5, limit_s=300.0,
)  # fmt: skip


def json_requests(stand, target, effort, *, conc):
    """Whole answers of about 1 KB, each connection one after another."""
    stand.answer_with()
    counted = stand.measured(target, "json", conc=conc, options=f"-d {effort.seconds}")
    return {
        "cpu_us": per(counted["cpu_s"] * 1e6, counted["ok"]),
        "rate": counted["rps"],
        "p50_ms": counted["lat"]["p50"] / 1000,
        "p99_ms": counted["lat"]["p99"] / 1000,
        "cpu_share": counted["cpu_s"] / counted["wall"],
        "wait_share": counted["waited_s"] / counted["wall"],
        "failed": failed(counted),
    }


def burst_streams(stand, target, effort, *, conc):
    """Streams whose chunks come as fast as they are read: they pile up and move many at once."""
    stand.answer_with()
    options = f"-d {effort.seconds} -e {EVENTS}"
    return stream_figures(stand.measured(target, "stream", conc=conc, options=options))


def paced_streams(stand, target, effort, *, conc):
    """Streams with 10 ms between chunks, as a live model sends them: one read, one write each."""
    stand.answer_with(delay_ms=10)
    options = f"-n {conc * effort.waves} -e {EVENTS}"
    return stream_figures(stand.measured(target, "stream", conc=conc, options=options))


def first_token(stand, target, effort):
    """One paced stream at a time: when its first event arrives."""
    stand.answer_with(chunks=16, delay_ms=10)
    options = f"-n {effort.firsts} -e 18"
    counted = stand.measured(target, "stream", conc=1, options=options)
    return {"ttft_ms": counted["ttft"]["p50"] / 1000, "failed": failed(counted)}


def slow_streams(stand, target, effort):
    """Thousands of streams open at once that say a word every half second."""
    stand.answer_with(chunks=effort.slow_chunks, delay_ms=500)
    before_mb = target.rss_mb()
    target.forget_peak()
    options = f"-n {effort.slow} -r 500 -e {effort.slow_chunks + 2}"
    counted = stand.measured(target, "stream", conc=effort.slow, options=options, limit_s=90)
    peak_mb = target.rss_mb(peak=True)
    return {
        "streams": effort.slow,
        "failed": failed(counted),
        "open_at_once": counted["peak"],
        "cpu_s": counted["cpu_s"],
        "peak_mb": peak_mb,
        "stream_kb": (peak_mb - before_mb) * 1000 / effort.slow,
        "ttft_p99_ms": counted["ttft"]["p99"] / 1000,
        "gap_p99_ms": counted["gap"]["p99"] / 1000,
    }


def big_bodies(stand, target, effort):
    """Requests of 10 MB (a picture in the prompt), one at a time."""
    stand.answer_with()
    counted = stand.measured(target, "big", conc=1, options=f"-n {effort.big}")
    return {
        "cpu_ms": per(counted["cpu_s"] * 1e3, counted["ok"]),
        "p50_ms": counted["lat"]["p50"] / 1000,
        "failed": failed(counted),
    }


def correct(stand, target, effort):
    """The same bytes as without a gateway, and hang-ups that reach the worker."""
    stand.answer_with()
    figures = {}
    for name, body in (("json", "json"), ("stream", "stream"), ("quiet", "stream-no-usage")):
        figures[f"{name}_same"] = int(
            stand.ask(target.port, body) == stand.ask(stand.mock_port, body)
        )
    return {**figures, **stream_hang_ups(stand, target), **json_hang_ups(stand, target)}


def stream_hang_ups(stand, target):
    """Eight streams, left after ten of their 128 events."""
    stand.answer_with(delay_ms=50)
    counted = stand.load(target.port, "stream", conc=4, options="-n 8 -x 10")
    seen, took_s = await_aborts(stand, counted["hung"])
    return {
        "left": counted["hung"],
        "aborted": seen["aborted"],
        "abort_ms": took_s * 1000,
        "chunks_made": seen["chunks"],
        "chunks_wanted": counted["hung"] * 10,
    }


def json_hang_ups(stand, target):
    """Four requests whose answer takes 1.5 s, left after 0.4 s."""
    stand.answer_with(latency_ms=1500)
    counted = stand.load(target.port, "json", conc=4, options="-n 4", limit_s=0.4)
    seen, _ = await_aborts(stand, counted["unfinished"], limit_s=0.8)
    time.sleep(1.0)  # what was not aborted is answered before the next test
    return {"json_left": counted["unfinished"], "json_aborted": seen["aborted"]}


def await_aborts(stand, wanted, limit_s=HANG_UP_LIMIT_S):
    """Wait until the mock saw this many connections go: its counters, and how long it took."""
    began = time.monotonic()
    while True:
        seen = stand.mock("/__stats")
        took = time.monotonic() - began
        if seen["aborted"] >= wanted or took > limit_s:
            return seen, took
        time.sleep(0.01)


def stream_figures(counted):
    return {
        "cpu_us": per(counted["cpu_s"] * 1e6, counted["events"]),
        "rate": counted["eps"],
        "gap_p50_ms": counted["gap"]["p50"] / 1000,
        "gap_p99_ms": counted["gap"]["p99"] / 1000,
        "cpu_share": counted["cpu_s"] / counted["wall"],
        "failed": failed(counted),
    }


def failed(counted):
    """Whatever was not a whole answer; a stream can be in more than one of the last two."""
    kinds = ("non2xx", "err", "cut", "refused", "unfinished", "wrong_count", "nodone")
    return sum(counted[kind] for kind in kinds)


def per(amount, count):
    if not count:
        raise TargetError("served nothing of a whole test")
    return amount / count


@dataclass(frozen=True)
class Test:
    """A name in the results, what to run, and whether once is enough."""

    name: str
    run: object
    group: str
    once: bool = False
    skip_direct: bool = False


TESTS = (
    Test("slow", slow_streams, "slow", once=True),  # on fresh processes: first
    Test("correct", correct, "correct", once=True, skip_direct=True),
    Test("json_c1", partial(json_requests, conc=1), "json"),
    Test("json_c32", partial(json_requests, conc=32), "json"),
    Test("json_c128", partial(json_requests, conc=128), "json"),
    Test("first_token", first_token, "streams"),
    Test("paced_c32", partial(paced_streams, conc=32), "streams"),
    Test("burst_c32", partial(burst_streams, conc=32), "streams"),
    Test("big", big_bodies, "big"),
)
# What `direct` has not.
OF_A_PROCESS = {"cpu_us", "cpu_ms", "cpu_s", "cpu_share", "wait_share", "peak_mb", "stream_kb"}
GROUPS = ("start", "slow", "correct", "json", "streams", "big")
