"""Markdown from the lines of a run: the verdict, then a table per kind of load.

A figure is the median over the rounds; a range in brackets is that of the single rounds.
"""

import re

from bounds import Figures, verdict
from targets import BASE, DIRECT, OURS

BEGIN = "<!-- figures: begin. Written by bench/run.py --write; edits here are lost -->"
END = "<!-- figures: end -->"
NONE = "-"


def markdown(lines):
    """The whole report."""
    head = lines[0]
    figures = Figures(lines)
    names = [name for name in head["targets"] if figures.rounds(name, "start", "start_s")]
    parts = [
        preamble(head, figures),
        verdict_table(figures) if OURS in head["targets"] else "",
        json_table(figures, names),
        stream_table(figures, names),
        slow_table(figures, names),
        rest_table(figures, names),
        correct_table(figures, names),
        problems(lines),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def preamble(head, figures):
    rounds = f"{head['rounds']} round{'s' if head['rounds'] > 1 else ''}"
    said = [
        f"{head['date']}; {head['machine']}; {head['versions']}.",
        f"Median of {rounds}, {head['seconds']:g} s each load.",
    ]
    if head["quick"]:
        said.append("**A quick look: too short to be kept.**")
    waited = figures.median(BASE, "json_c32", "wait_share")
    if waited is not None:  # it is one busy thread: what it waits for is other work
        said.append(f"Other work had the gateways' CPU {waited:.0%} of the time.")
    return " ".join(said)


def verdict_table(figures):
    rows = []
    for bound, value, holds in verdict(figures):
        sign = "<" if bound.strict else "≤"
        shown = {None: "not measured", True: "yes", False: "**no**"}[holds]
        unit = f" {bound.unit}" if bound.unit else ""
        limit = f"{sign} {bound.limit:g}{unit}"
        rows.append((bound.says, limit, number(value, 2 if unit else 0), shown))
    return table("Verdict", ("tiergate", "bound", "measured", "holds"), rows)


def json_table(f, names):
    heads = (
        "target", "CPU µs/request, 1 at once", "32", "128", "of bare_aiohttp, 32",
        "requests/s, 32", "core share, 32", "added p50 / p99 ms, 1", "p50 / p99 ms, 32",
    )  # fmt: skip
    rows = []
    for name in names:
        cpu = [spread(f, name, f"json_c{c}", "cpu_us") for c in (1, 32, 128)]
        added = [number(f.added(name, "json_c1", each), 2) for each in ("p50_ms", "p99_ms")]
        rows.append((
            name, *cpu, number(f.ratio(name, "json_c32"), 2),
            number(f.median(name, "json_c32", "rate")),
            number(f.median(name, "json_c32", "cpu_share"), 2),
            " / ".join(added), pair(f, name, "json_c32", "p50_ms", "p99_ms"),
        ))  # fmt: skip
    return table("Whole answers, 0.8 KB in, 1 KB out", heads, rows)


def stream_table(f, names):
    heads = (
        "target", "CPU µs/chunk, paced, 32 streams", "of bare_aiohttp",
        "added time to first token ms", "gap p50 / p99 ms (10 sent)",
        "CPU µs/chunk, burst, 32 streams", "chunks/s, burst",
    )  # fmt: skip
    rows = [
        (
            name, spread(f, name, "paced_c32", "cpu_us", 1), number(f.ratio(name, "paced_c32"), 2),
            number(f.added(name, "first_token", "ttft_ms"), 2),
            pair(f, name, "paced_c32", "gap_p50_ms", "gap_p99_ms"),
            number(f.median(name, "burst_c32", "cpu_us"), 1),
            number(f.median(name, "burst_c32", "rate")),
        )
        for name in names
    ]  # fmt: skip
    return table("Streams of 128 chunks", heads, rows)


def slow_table(f, names):
    counts = {f.median(name, "slow", "streams") for name in names} - {None}
    heads = (
        "target", "failed", "open at once", "peak memory MB", "KB per stream", "CPU s",
        "first token p99 ms (500 sent)", "gap p99 ms (500 sent)",
    )  # fmt: skip
    keys = (
        ("failed", 0), ("open_at_once", 0), ("peak_mb", 1), ("stream_kb", 1), ("cpu_s", 2),
        ("ttft_p99_ms", 0), ("gap_p99_ms", 0),
    )  # fmt: skip
    rows = [
        (name, *(number(f.median(name, "slow", key), digits) for key, digits in keys))
        for name in names
        if f.rounds(name, "slow", "failed")
    ]
    return table(f"{number(max(counts, default=0))} slow streams at once", heads, rows)


def rest_table(f, names):
    heads = (
        "target", "start s", "idle MB", "idle CPU %", "CPU ms per 10 MB request", "p50 ms",
        "requests failed, all tests",
    )  # fmt: skip
    keys = (
        ("start", "start_s", 2), ("idle", "rss_mb", 1), ("idle", "cpu_pct", 1),
        ("big", "cpu_ms", 1), ("big", "p50_ms", 1),
    )  # fmt: skip
    rows = [
        (name, *(number(f.median(name, *key), digits) for *key, digits in keys),
         number(f.failed(name)))
        for name in names
        if name != DIRECT
    ]  # fmt: skip
    return table("Start, idle, large bodies", heads, rows)


def correct_table(f, names):
    heads = (
        "target", "JSON", "stream", "stream without usage asked for",
        "streams left → aborted upstream", "after ms", "chunks made / wanted",
        "waiting requests left → aborted upstream",
    )  # fmt: skip
    rows = []
    for name in names:
        read = {key: f.median(name, "correct", key) for key in (
            "json_same", "stream_same", "quiet_same", "left", "aborted", "abort_ms",
            "chunks_made", "chunks_wanted", "json_left", "json_aborted",
        )}  # fmt: skip
        if read["left"] is None:
            continue
        same = [
            "same bytes" if read[f"{key}_same"] else "changed"
            for key in ("json", "stream", "quiet")
        ]
        shown = {key: number(value) for key, value in read.items()}
        rows.append((
            name, *same, f"{shown['left']} → {shown['aborted']}", shown["abort_ms"],
            f"{shown['chunks_made']} / {shown['chunks_wanted']}",
            f"{shown['json_left']} → {shown['json_aborted']}",
        ))  # fmt: skip
    return table("Beside the same requests without a gateway", heads, rows)


def problems(lines):
    said = [f"- {line['target']}: {line['error']}" for line in lines if "error" in line]
    said += [f"- {name} left out: {why}" for name, why in lines[0]["left_out"].items()]
    return "\n".join(dict.fromkeys(said))


# ------------------------------------------------------------------------------------- cells


def number(value, digits=0):
    return NONE if value is None else f"{value:,.{digits}f}"


def pair(f, name, test, *keys):
    return " / ".join(number(f.median(name, test, key), 2) for key in keys)


def spread(f, name, test, key, digits=0):
    values = f.rounds(name, test, key).values()
    if not values:
        return NONE
    middle = number(f.median(name, test, key), digits)
    if len(values) == 1:
        return middle
    return f"{middle} ({number(min(values), digits)} to {number(max(values), digits)})"


def table(title, heads, rows):
    if not any(cell.strip(f" /{NONE}") for row in rows for cell in row[1:]):
        return ""
    lines = [heads, ("---",) * len(heads), *rows]
    return f"### {title}\n\n" + "\n".join("| " + " | ".join(row) + " |" for row in lines)


def write_between(path, text):
    """Replace what stands between the two markers of the page."""
    page = path.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        msg = f"{path} needs each marker once:\n{BEGIN}\n{END}"
        raise ValueError(msg)
    block = f"{BEGIN}\n\n{text.strip()}\n\n{END}"
    pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
    path.write_text(re.sub(pattern, lambda _: block, page, flags=re.DOTALL))
