"""Measure tiergate beside its peers, in one run: `python bench/run.py --help`.

In each round every target is started, then every test goes over all of them in turn, so that two
figures of one test are seconds apart. Prints Markdown, writes JSON lines; exits 1 if a bound of
bounds.py is missed or a target broke, 2 if it could not run at all.
"""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from bounds import Figures, verdict
from machine import cpu_s, describe, rss_mb
from measure import FULL, GROUPS, OF_A_PROCESS, QUICK, TESTS
from report import markdown, write_between
from stand import BenchError, Stand, TargetError
from targets import DIRECT, HERE, OURS, TARGETS, Places, Target, missing, nginx_program, versions

WORK = HERE / "work"
PEERS = os.environ.get("BENCH_PEERS", str(WORK / "peers"))


class Results:
    """The lines of a run: kept, written as they come, and told on stderr."""

    def __init__(self, path, head):
        self.lines = [head]
        self.file = path.open("w")
        self._write(head)

    def add(self, round_number, target, test, figures):
        line = {"round": round_number, "target": target, "test": test, "figures": figures}
        self.lines.append(line)
        self._write(line)
        shown = ", ".join(f"{key} {value:.6g}" for key, value in list(figures.items())[:4])
        say(f"{round_number} {test:12} {target:14} {shown}")

    def broke(self, round_number, target, error):
        line = {"round": round_number, "target": target, "error": str(error)}
        self.lines.append(line)
        self._write(line)
        say(f"{round_number} {target} broke: {error}")

    def _write(self, line):
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()


class Rounds:
    """All rounds of a run on one stand, within its limit of time."""

    def __init__(self, stand, results, effort, groups):
        self.stand, self.results, self.effort = stand, results, effort
        self.tests = [test for test in TESTS if test.group in groups]
        self.deadline = time.monotonic() + effort.limit_s

    def run(self, targets):
        for number in range(1, self.effort.rounds + 1):
            turn = number % len(targets)  # nobody is always first
            running = self._start(number, targets[turn:] + targets[:turn])
            self._idle(number, running)
            for test in self.tests:
                if number == 1 or not test.once:
                    self._test(number, test, running)
            for target in running.values():
                self.stand.stop(target)

    def _start(self, number, targets):
        running = {}
        self.stand.answer_with()
        for target in targets:
            try:
                running[target.name] = self.stand.start(target)
            except TargetError as error:
                self.results.broke(number, target.name, error)
                continue
            figures = {"start_s": running[target.name].start_s}
            self.results.add(number, target.name, "start", figures)
        return running

    def _idle(self, number, running):
        """All at once: nobody has anything to do."""
        time.sleep(1)
        processes = {name: each.pid for name, each in running.items() if each.pid}
        figures = {name: {"rss_mb": rss_mb(pid)} for name, pid in processes.items()}
        if number == 1:
            before = {name: cpu_s(pid) for name, pid in processes.items()}
            time.sleep(self.effort.idle_s)
            for name, pid in processes.items():
                used_s = cpu_s(pid) - before[name]
                figures[name]["cpu_pct"] = used_s / self.effort.idle_s * 100
        for name, found in figures.items():
            self.results.add(number, name, "idle", found)

    def _test(self, number, test, running):
        if test.name == "json_c1":
            self._warm(running)
        for name, target in list(running.items()):
            if test.skip_direct and name == DIRECT:
                continue
            if time.monotonic() > self.deadline:
                msg = f"over its limit of {self.effort.limit_s:.0f} s"
                raise BenchError(msg)
            try:
                figures = test.run(self.stand, target, self.effort)
            except TargetError as error:
                self.results.broke(number, name, f"{test.name}: {error}")
                self.stand.stop(running.pop(name))
                continue
            if not target.pid:
                figures = {key: figures[key] for key in figures if key not in OF_A_PROCESS}
            self.results.add(number, name, test.name, figures)

    def _warm(self, running):
        self.stand.answer_with()
        for target in running.values():
            self.stand.load(target.port, "json", conc=32, options=f"-d {self.effort.warm_s}")


def say(text):
    print(text, file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--targets", default=",".join(TARGETS), help="default: %(default)s")
    add(
        "--add", action="append", default=[], metavar="NAME=COMMAND",
        help="one more target; {python} {port} {upurl} {scratch} are filled in",
    )  # fmt: skip
    add("--tests", default=",".join(GROUPS), help="default: %(default)s")
    add("--quick", action="store_true", help="one short round: a look, not a result")
    add("--rounds", type=int, help=f"default: {FULL.rounds}")
    add("--seconds", type=float, help=f"of each saturating load; default: {FULL.seconds:g}")
    add("--peers", default=PEERS, help="what bench/peers.sh made; default: $BENCH_PEERS or work/")
    add("--gateway-cpu", type=int, default=0)
    add("--load-cpu", type=int, default=1)
    add("--out", type=Path, help="JSON lines; default: bench/work/results-TIME.jsonl")
    add("--read", type=Path, metavar="JSONL", help="report on an earlier run, measure nothing")
    add("--write", type=Path, metavar="PAGE", help="put the report between this page's markers")
    return parser.parse_args()


def chosen(args, places):
    """The targets to run, in order, and why the others can't."""
    table = dict(TARGETS)
    names = args.targets.split(",")
    for each in args.add:
        name, _, command = each.partition("=")
        table[name] = Target(name, command)
        names.append(name)
    unknown = [name for name in names if name not in table]
    if unknown:
        msg = f"no such target: {', '.join(unknown)}; there are {', '.join(table)}"
        raise BenchError(msg)
    left_out = {name: why for name in names if (why := missing(table[name], places))}
    return [table[name] for name in names if name not in left_out], left_out


def effort_of(args):
    effort = QUICK if args.quick else FULL
    given = {"rounds": args.rounds, "seconds": args.seconds}
    return type(effort)(**{**vars(effort), **{k: v for k, v in given.items() if v is not None}})


def measure(args):
    groups = args.tests.split(",")
    if unknown := set(groups) - set(GROUPS):
        msg = f"no such test: {', '.join(unknown)}; there are {', '.join(GROUPS)}"
        raise BenchError(msg)
    places = Places(python=sys.executable, peers=args.peers, nginx=nginx_program())
    targets, left_out = chosen(args, places)
    names = [target.name for target in targets]
    effort = effort_of(args)
    head = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": describe(),
        "versions": versions(names, places),
        "targets": names,
        "left_out": left_out,
        "quick": args.quick,
        "rounds": effort.rounds,
        "seconds": effort.seconds,
    }
    WORK.mkdir(exist_ok=True)
    out = args.out or WORK / f"results-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    results = Results(out, head)
    with Stand(
        work=WORK, places=places, gateway_cpu=args.gateway_cpu, load_cpu=args.load_cpu
    ) as stand:
        Rounds(stand, results, effort, groups).run(targets)
    say(f"lines: {out}")
    return results.lines


def keep(page, head, text):
    if head["quick"]:
        raise BenchError("--quick figures are not for a page")
    write_between(page, text)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    args = arguments()
    try:
        lines = (
            [json.loads(line) for line in args.read.read_text().splitlines()]
            if args.read
            else measure(args)
        )
        text = markdown(lines)
        print(text)
        if args.write:
            keep(args.write, lines[0], text)
    except (BenchError, OSError, ValueError, subprocess.SubprocessError) as error:
        say(f"bench: {error}")
        return 2
    broke = any("error" in line for line in lines)
    ours = OURS in lines[0]["targets"]
    missed = ours and any(holds is False for *_, holds in verdict(Figures(lines)))
    return 1 if broke or missed else 0


if __name__ == "__main__":
    sys.exit(main())
