"""Programs that tests start, and waiting for what they do.

A program ends with the test process, even if that one is killed. What it prints is kept in files:
no pipe fills up, and a failed start can say why.
"""

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).parents[2]
START_S = 60.0  # a busy machine is no failure
STOP_S = 15.0
POLL_S = 0.01

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, *, within_s: float = START_S) -> T:
    """Ask again and again until the answer is true, and return it."""
    end = time.monotonic() + within_s
    while not (answer := condition()):
        if time.monotonic() > end:
            pytest.fail(f"not within {within_s} s: {what}")
        time.sleep(POLL_S)
    return answer


def free_port() -> int:
    """A port of the loopback interface on which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Program:
    """A Python module, running.

    Attributes:
        pid: its process id.
    """

    def __init__(self, *command: str, folder: Path, cwd: Path = ROOT) -> None:
        self._name = " ".join(command[:2])
        self._out, self._err = folder / "stdout", folder / "stderr"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gateway.cli.demo_tether", *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                cwd=cwd,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def out(self) -> str:
        """What it printed to standard output so far."""
        return self._out.read_text()

    def err(self) -> str:
        """What it printed to standard error so far."""
        return self._err.read_text()

    def wait_line(self, start: str, read: Callable[[], str]) -> str:
        """The rest of the first whole line that starts so; fails if the program ends before."""

        def look() -> str | None:
            ended = self.exit_code is not None  # before reading: what it printed last counts
            for line in read().splitlines(keepends=True):
                if line.startswith(start) and line.endswith("\n"):
                    return line[len(start) :].strip()
            assert not ended, f"{self._name} ended with {self.exit_code}:\n{self.err()}"
            return None

        return until(look, f"{self._name} prints {start!r}") or ""

    def stop(self) -> int:
        """End it, and return its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            pytest.fail(f"{self._name} didn't end on SIGTERM:\n{self.err()}")
        finally:
            if self._process.stdin is not None:
                self._process.stdin.close()


@contextlib.contextmanager
def program(*command: str) -> Iterator[Program]:
    """Run a module with its arguments for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="tiergate-test-") as folder:
        running = Program(*command, folder=Path(folder))
        try:
            yield running
        finally:
            running.stop()
