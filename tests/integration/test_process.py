"""`tiergate serve` as a process among others: what it inherits, and the signals it gets."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.programs import free_port, until

# A worker need not be there to be in front of.
SERVE = [sys.executable, "-m", "gateway", "serve", "http://127.0.0.1:9", "--listen"]


@contextmanager
def serving(before: str = "") -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The process, once it answers; `before` is shell to run in its place first."""
    address = f"127.0.0.1:{free_port()}"
    words = ["sh", "-c", f'{before}\nexec "$@"', "sh", *SERVE, address]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        until(lambda: process.poll() is not None or alive(address), "an answer of /livez")
        assert process.poll() is None
        yield process, address
    finally:
        process.kill()
        process.communicate()


def alive(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/livez", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_closed_standard_file_is_no_obstacle(number: int) -> None:
    with serving(f"exec {number}>&-") as (process, _):
        process.terminate()
        assert process.wait(10) == 0


def test_a_terminal_that_closes_cuts_nothing() -> None:
    with serving() as (process, address):
        process.send_signal(signal.SIGHUP)
        assert alive(address)
        process.terminate()
        assert b"taken up by a restart only" in process.communicate(timeout=10)[1]


def test_too_few_files_are_told_at_once() -> None:
    with serving("ulimit -n 64") as (process, _):
        process.terminate()
        told = process.communicate(timeout=10)[1]
        assert b"this process may open 64 files: enough for 32 connections" in told


def test_an_interrupted_start_leaves_no_traceback() -> None:
    process = subprocess.Popen([*SERVE, "127.0.0.1:0"], stderr=subprocess.PIPE)
    assert process.stderr is not None
    os.read(process.stderr.fileno(), 1)  # it runs, and may or may not listen yet
    process.send_signal(signal.SIGINT)
    assert b"Traceback" not in process.communicate(timeout=20)[1]
