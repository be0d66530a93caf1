"""A foreign load generator finds nothing lost through tiergate, and a real model as fast as direct.

guidellm drives llama.cpp with SmolLM2-135M directly and through tiergate by turns. One core is the
engine's; load generator and gateway share another. Answers have one length, and the engine caches
no prompt, so that every run is the same work. The figures are printed. Where other work makes them
differ by more than what is asked, the comparison is skipped, unless every pair says the same.

The first time, guidellm is installed into the cache folder: 1.5 GB, minutes, and the only need of a
network.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx
import pytest

from gateway.cli import demo_worker
from tests.support.guidellm import Guidellm, Load, Run, guidellm
from tests.support.llama import MODEL, llama_server
from tests.support.programs import program
from tests.support.served import Served, served

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]  # the installation counts

STREAMS = 4
PAIRS = 5
REAL = Load(demo_worker.MODEL, requests=16, streams=STREAMS, prompt_tokens=32, output_tokens=64)
# More streams than slots, answers of a moment: connections come and go all the time.
HASTY = Load(MODEL, requests=400, streams=16, prompt_tokens=16, output_tokens=16)
MAY_COST = 0.02  # of the tokens per second
NOISE = MAY_COST / 2  # between pairs, in the middle: with more, five of them can't tell


@dataclass
class Way:
    """Where the load goes, and what came of it."""

    url: str
    runs: list[Run] = field(default_factory=list)

    def middle(self, name: str) -> float:
        return median(getattr(run, name) for run in self.runs)


@pytest.fixture(scope="module")
def generator() -> Guidellm:
    return guidellm()


@pytest.fixture(scope="module")
def cores() -> tuple[int, int]:
    """The engine's and the others': where there are four, first and last are no twins of one."""
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        pytest.skip("a fair comparison needs two cores")
    return mine[-1], mine[0]


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started inside the block runs there, and whatever that starts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@pytest.fixture
def real(cores: tuple[int, int]) -> Iterator[tuple[str, Served]]:
    """SmolLM2 on one thread, and the gateway before it, warm."""
    with contextlib.ExitStack() as stack:
        with on_core(cores[0]):
            engine = stack.enter_context(
                program("gateway.cli.demo_worker", "--slots", str(STREAMS), "--threads", "1")
            )
        url = engine.wait_line("ready ", engine.out)
        with on_core(cores[1]):
            gateway = stack.enter_context(served(url))
        body = {
            "model": REAL.model,
            "max_tokens": 64,
            "messages": [{"role": "user", "content": "?"}],
        }
        httpx.post(f"{gateway.base_url}/chat/completions", json=body, timeout=60).raise_for_status()
        yield url, gateway


def test_a_real_model_is_as_fast_as_direct(
    generator: Guidellm,
    real: tuple[str, Served],
    cores: tuple[int, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    direct, through = Way(real[0]), Way(real[1].url)
    for pair in range(PAIRS):
        # What drifts while this goes on shall fall on both: who was first goes second.
        for way in (direct, through) if pair % 2 == 0 else (through, direct):
            with on_core(cores[1]):
                way.runs.append(generator.run(way.url, REAL, tmp_path))
    with capsys.disabled():
        print("\n" + report(direct, through))

    for run in through.runs:
        assert_nothing_lost(run, REAL)
    for run in direct.runs + through.runs:  # the same work
        assert (run.output_tokens, run.cached_tokens) == ({REAL.output_tokens}, {0})
    assert_remembered_as_ok(real[1], PAIRS * REAL.requests + 1)

    shares = shares_of(direct, through)
    assert max(shares) >= 1 - MAY_COST
    if noise(shares) > NOISE:
        pytest.skip("this machine is too busy to compare speeds")
    assert median(shares) >= 1 - MAY_COST


def test_nothing_is_lost_in_haste(generator: Guidellm, tmp_path: Path) -> None:
    with llama_server(slots=STREAMS) as llama, served(llama.url) as gateway:
        assert_nothing_lost(generator.run(gateway.url, HASTY, tmp_path), HASTY)
        assert_remembered_as_ok(gateway, HASTY.requests)


def assert_nothing_lost(run: Run, load: Load) -> None:
    """By the load generator's reckoning."""
    told = (run.successful, run.errored, run.incomplete)
    assert told == (load.requests, 0, 0), run.errors
    assert run.output_tokens == {load.output_tokens}


def assert_remembered_as_ok(gateway: Served, requests: int) -> None:
    """By the gateway's reckoning."""
    records = [r for r in gateway.records() if r["path"] == "/v1/chat/completions"]
    assert [r for r in records if r["outcome"] != "ok"] == []
    assert len(records) == requests


def shares_of(direct: Way, through: Way) -> list[float]:
    """Of each pair: through, as a share of direct, of the tokens per second."""
    pairs = zip(direct.runs, through.runs, strict=True)
    return [t.tokens_per_s / d.tokens_per_s for d, t in pairs]


def noise(shares: list[float]) -> float:
    """How far a pair usually is from the middle one."""
    return median(abs(share - median(shares)) for share in shares)


def report(direct: Way, through: Way) -> str:
    """The figures of each run, and the medians."""
    measures = {"tokens/s": "tokens_per_s", "TTFT, ms": "ttft_ms", "ITL, ms": "itl_ms"}
    lines = [
        "       " + "".join(f"{head:<20}" for head in measures),
        "  pair " + "  direct  through   " * len(measures),
    ]
    for pair, (d, t) in enumerate(zip(direct.runs, through.runs, strict=True), start=1):
        figures = (f"{getattr(d, m):8.2f} {getattr(t, m):8.2f}" for m in measures.values())
        lines.append(f"{pair:>6} " + "   ".join(figures))
    figures = (f"{direct.middle(m):8.2f} {through.middle(m):8.2f}" for m in measures.values())
    lines.append("median " + "   ".join(figures))
    shares = shares_of(direct, through)
    lost = sum(run.errored + run.incomplete for run in direct.runs)
    return "\n".join(
        [
            *lines,
            f"through/direct, tokens/s: {median(shares):.4f} ± {noise(shares):.4f}",
            f"lost directly: {lost} of {PAIRS * REAL.requests} requests",
        ]
    )
