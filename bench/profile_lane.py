"""Where a gateway's CPU time goes under one kind of load: `python bench/profile_lane.py --help`.

By sampling with py-spy (`--py-spy PATH`, or on the path), which hardly slows what it looks at; or
with `--cprofile`, which counts every call and makes small functions look dearer than they are.
"""

import argparse
import collections
import pstats
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

from run import PEERS, WORK
from stand import Stand
from targets import OURS, TARGETS, Places, nginx_program

LOADS = {  # how the mock answers, body, connections, option of the load client
    "json": ({}, "json", 32, "-d {seconds}"),
    "json1": ({}, "json", 1, "-d {seconds}"),
    "paced": ({"delay_ms": 10}, "stream", 32, "-d {seconds}"),
    "burst": ({}, "stream", 32, "-d {seconds}"),
    "big": ({}, "big", 1, "-d {seconds}"),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("load", nargs="?", choices=LOADS, default="json")
    add(
        "--target", default=OURS, choices=[n for n, t in TARGETS.items() if "{python}" in t.command]
    )
    add("--seconds", type=int, default=5)
    add("--top", type=int, default=30)
    add("--py-spy", default=shutil.which("py-spy"))
    add("--native", action="store_true", help="py-spy also shows C functions")
    add("--lines", action="store_true", help="py-spy shows lines, not functions")
    add("--cprofile", action="store_true")
    return parser.parse_args()


def main():
    args = arguments()
    if not args.cprofile and not args.py_spy:
        sys.exit("no py-spy: name it with --py-spy (pip install py-spy, anywhere), or --cprofile")
    places = Places(python=sys.executable, peers=PEERS, nginx=nginx_program())
    target = TARGETS[args.target]
    if args.cprofile:
        counted = "{python} -m cProfile -o {scratch}/profile"
        target = replace(target, command=target.command.replace("{python}", counted, 1))
    with Stand(work=WORK, places=places, gateway_cpu=0, load_cpu=1) as stand:
        answers, body, conc, options = LOADS[args.load]
        running = stand.start(target)
        stand.answer_with()
        stand.load(running.port, "json", conc=32, options="-d 0.5")
        stand.answer_with(**answers)
        spy = None if args.cprofile else attach(args, running.pid)
        options = options.format(seconds=args.seconds + 1)
        counted = stand.measured(running, body, conc=conc, options=options)
        print(
            f"{args.target}, {args.load}: {counted['rps']:.0f} requests/s, "
            f"{counted['events']} events, {counted['cpu_s']:.2f} CPU s (slowed by the profiler)\n"
        )
        if spy:
            spy.wait(60)
            show_samples(args.top)
        if args.cprofile:
            running.process.send_signal(signal.SIGINT)  # an orderly end: it writes its profile
            running.process.wait(10)
            profile = str(stand.scratch(target.name) / "profile")
            pstats.Stats(profile).sort_stats("tottime").print_stats(args.top)


def attach(args, pid):
    words = [args.py_spy, "record", "--pid", str(pid), "--duration", str(args.seconds)]
    words += ["--rate", "500", "--format", "raw", "--output", str(WORK / "profile.txt")]
    words += ["--native"] * args.native + ["--function"] * (not args.lines)
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def show_samples(top):
    """Each frame's share of the samples: with it on top of the stack, and anywhere in it."""
    own, within, total = collections.Counter(), collections.Counter(), 0
    for line in (WORK / "profile.txt").read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [re.sub(r"\(.*/(?=[^/]+/[^/]+\))", "(", frame) for frame in stack.split(";")]
        own[frames[-1]] += int(count)
        total += int(count)
        for frame in set(frames):
            within[frame] += int(count)
    print(f"{total} samples\n\n  own  within")
    for frame, count in own.most_common(top):
        print(f"{count / total:5.1%}  {within[frame] / total:5.1%}  {frame}")


if __name__ == "__main__":
    main()
