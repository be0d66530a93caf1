"""The bounds of this release: the figures that must hold, and the verdict on a run.

Ratios are against bare_aiohttp in the same round of the same run, so they hold on any machine;
the absolute bounds are for one core of an ordinary server.
"""

import statistics
from dataclasses import dataclass

from targets import BASE, DIRECT, OURS


@dataclass(frozen=True)
class Bound:
    """What must stay at or below `limit` (below it, where `strict`)."""

    says: str
    unit: str
    limit: float
    figure: object  # Figures -> a number, or None where it was not measured
    strict: bool = False

    def holds(self, value):
        return value < self.limit if self.strict else value <= self.limit


class Figures:
    """All lines of one run, asked by target, test and figure."""

    def __init__(self, lines):
        self.lines = [line for line in lines if "test" in line]
        self.by_key = {}
        for line in self.lines:
            for name, value in line["figures"].items():
                key = line["target"], line["test"], name
                self.by_key.setdefault(key, {})[line["round"]] = value

    def rounds(self, target, test, name):
        """Round number to figure."""
        return self.by_key.get((target, test, name), {})

    def median(self, target, test, name):
        values = self.rounds(target, test, name).values()
        return statistics.median(values) if values else None

    def against(self, target, other, test, name, *, combine):
        """Median over the rounds in which both were measured of combine(target's, other's)."""
        ours, theirs = self.rounds(target, test, name), self.rounds(other, test, name)
        both = [combine(ours[r], theirs[r]) for r in ours if r in theirs]
        return statistics.median(both) if both else None

    def ratio(self, target, test, name="cpu_us"):
        if not all(self.rounds(BASE, test, name).values()):
            return None  # too short a load to read any CPU time from
        return self.against(target, BASE, test, name, combine=lambda a, b: a / b)

    def added(self, target, test, name):
        return self.against(target, DIRECT, test, name, combine=lambda a, b: a - b)

    def failed(self, target):
        """Failed requests of all tests and rounds; None if nothing that counts them was run."""
        counts = [
            line["figures"]["failed"]
            for line in self.lines
            if line["target"] == target and "failed" in line["figures"]
        ]
        return sum(counts) if counts else None

    def faults(self, target):
        """Answers that were not the same bytes, and hang-ups that did not reach the worker."""

        def read(name):
            return self.median(target, "correct", name)

        if read("json_same") is None:
            return None
        changed = sum(1 - read(f"{name}_same") for name in ("json", "stream", "quiet"))
        deaf = read("left") - read("aborted") + read("json_left") - read("json_aborted")
        return int(changed + deaf)


def of_ours(test, name):
    return lambda figures: figures.median(OURS, test, name)


BOUNDS = (
    Bound("answers changed, hang-ups not passed on", "", 0, lambda f: f.faults(OURS)),
    Bound("requests failed, all tests", "", 0, lambda f: f.failed(OURS)),
    Bound(
        "CPU per request, 32 at once, of bare_aiohttp's", "x", 0.35,
        lambda f: f.ratio(OURS, "json_c32"),
    ),
    Bound(
        "CPU per paced chunk, 32 streams, of bare_aiohttp's", "x", 0.6,
        lambda f: f.ratio(OURS, "paced_c32"),
    ),
    Bound(
        "added time to first token, one paced stream, p50", "ms", 0.5,
        lambda f: f.added(OURS, "first_token", "ttft_ms"), strict=True,
    ),
    Bound("slow streams at once: failed", "", 0, of_ours("slow", "failed")),
    Bound("slow streams at once: memory of each", "KB", 8, of_ours("slow", "stream_kb")),
    Bound("memory when idle", "MB", 60, of_ours("idle", "rss_mb"), strict=True),
    Bound("start until the first answer", "s", 0.8, of_ours("start", "start_s"), strict=True),
    Bound("CPU per 10 MB request", "ms", 25, of_ours("big", "cpu_ms"), strict=True),
)  # fmt: skip


def verdict(figures):
    """Each bound with its value and whether it holds; both None where it was not measured."""
    rows = []
    for bound in BOUNDS:
        value = bound.figure(figures)
        rows.append((bound, value, None if value is None else bound.holds(value)))
    return rows
