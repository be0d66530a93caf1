"""What the kernel says: CPU time and memory of a process tree, and what machine this is.

Reads /proc only; starts and signals nothing.
"""

import os
import platform
from contextlib import contextmanager, suppress
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def tree(pid):
    """The process and all its descendants."""
    children = {}
    for entry in PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat_fields(entry)[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found = [pid]
    for each in found:  # grows while it is walked
        found += children.get(each, [])
    return found


def stat_fields(path):
    """The fields of a stat file behind the command name, which may itself hold blanks."""
    text = path.read_text()
    return text[text.rindex(")") + 2 :].split()


def cpu_s(pid):
    """User and system seconds of the process tree, ended children included.

    The kernel accounts by the nanosecond and shows ticks (10 ms): a figure over 0.5 CPU seconds
    is exact to 2 %.
    """
    ticks = 0
    for each in tree(pid):
        with suppress(OSError):
            ticks += sum(int(field) for field in stat_fields(PROC / str(each) / "stat")[11:15])
    return ticks / TICK


def waited_s(pid):
    """Seconds its threads were ready to run and something else had the CPU."""
    total_ns = 0
    for each in tree(pid):
        for entry in (PROC / str(each) / "task").glob("*/schedstat"):
            with suppress(OSError):
                total_ns += int(entry.read_text().split()[1])
    return total_ns / 1e9


def rss_mb(pid, *, peak=False):
    """Resident memory of the process tree in MB (10^6 bytes), now or at its peak."""
    label = "VmHWM:" if peak else "VmRSS:"
    total = 0
    for each in tree(pid):
        with suppress(OSError):
            for line in (PROC / str(each) / "status").read_text().splitlines():
                if line.startswith(label):
                    total += int(line.split()[1]) * 1024
    return total / 1e6


def forget_peak(pid):
    """Start the peak of each process anew at its present size."""
    for each in tree(pid):
        with suppress(OSError):
            (PROC / str(each) / "clear_refs").write_text("5")


@contextmanager
def on_cpu(cpu):
    """Processes started inside inherit this CPU; the caller gets its own set back."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def describe():
    """The machine in one line, for the head of a report."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in (PROC / "cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory_kb = int((PROC / "meminfo").read_text().split()[1])
    return (
        f"{os.cpu_count()} CPUs ({model}), {memory_kb / 2**20:.0f} GiB, "
        f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )
