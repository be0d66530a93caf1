"""The bench's processes: the mock model server, the gateways before it, the load client.

Everything is on 127.0.0.1, and whatever is started here is stopped here, by its own id. What is
measured, and how it is read, is in measure.py.
"""

import http.client
import json
import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from machine import cpu_s, forget_peak, on_cpu, rss_mb, waited_s
from targets import DIRECT, HERE, command_line

PATH = "/v1/chat/completions"
POLL_S = 0.005
START_LIMIT_S = 60


class BenchError(Exception):
    """The bench itself cannot go on."""


class TargetError(Exception):
    """One target broke; the others go on."""


@dataclass
class Running:
    """A target that answers. `process` is None for the mock reached directly."""

    name: str
    port: int
    process: subprocess.Popen | None = None
    start_s: float = 0.0

    @property
    def pid(self):
        return self.process.pid if self.process else None

    def cpu_s(self):
        return cpu_s(self.pid) if self.process else 0.0

    def waited_s(self):
        return waited_s(self.pid) if self.process else 0.0

    def rss_mb(self, *, peak=False):
        return rss_mb(self.pid, peak=peak) if self.process else 0.0

    def forget_peak(self):
        if self.process:
            forget_peak(self.pid)


class Stand:
    """Where the processes live: two CPUs, one scratch folder, one mock."""

    def __init__(self, *, work, places, gateway_cpu, load_cpu):
        self.work, self.places = Path(work), places
        self.gateway_cpu, self.load_cpu = gateway_cpu, load_cpu
        self.mock_port = free_port()
        self.processes = []

    def __enter__(self):
        usable = os.sched_getaffinity(0)
        if not {self.gateway_cpu, self.load_cpu} <= usable or self.gateway_cpu == self.load_cpu:
            msg = (
                f"needs one CPU for the gateway and another for the load; usable: {sorted(usable)}"
            )
            raise BenchError(msg)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 20_000)), hard))
        os.sched_setaffinity(0, {self.load_cpu})
        self.work.mkdir(parents=True, exist_ok=True)
        for name in ("mock", "load"):
            self._compile(name)
        for name, body in bodies().items():
            (self.work / f"body-{name}.json").write_text(json.dumps(body))
        try:
            self._start_mock()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            end(process)
        self.processes.clear()

    # ------------------------------------------------------------------------------ processes

    def _compile(self, name):
        source, program = HERE / f"{name}.c", self.work / name
        if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
            return
        compiler = shutil.which("cc")
        if not compiler:
            raise BenchError("needs a C compiler: cc")
        words = [compiler, "-O2", "-w", "-o", str(program), str(source)]
        subprocess.run(words, check=True)

    def _spawn(self, words, *, cpu, name, environment=None):
        scratch = self.scratch(name)
        with (scratch / "log").open("wb") as log, on_cpu(cpu):
            process = subprocess.Popen(
                words,
                cwd=scratch,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def scratch(self, name):
        folder = self.work / f"run-{name}"
        folder.mkdir(exist_ok=True)
        return folder

    def start(self, target):
        """Start the target and time it until it first answers a chat request with 200."""
        if target.name == DIRECT:
            return Running(DIRECT, self.mock_port)
        port = free_port()
        words, environment = command_line(
            target,
            self.places,
            port=port,
            port2=free_port(),
            upstream_port=self.mock_port,
            scratch=str(self.scratch(target.name)),
        )
        began = time.monotonic()
        process = self._spawn(
            words, cpu=self.gateway_cpu, name=target.name, environment=environment
        )
        while True:
            status, answer = self.ask(port, "json")
            took = time.monotonic() - began
            if status == http.HTTPStatus.OK:
                return Running(target.name, port, process, took)
            if process.poll() is not None or took > START_LIMIT_S:
                end(process)
                msg = (
                    f"no service after {took:.1f} s (exit {process.returncode}, last answer "
                    f"{status} {answer[:200]!r}); its log: bench/work/run-{target.name}/log"
                )
                raise TargetError(msg)
            time.sleep(POLL_S)

    def stop(self, running):
        if running.process in self.processes:
            end(running.process)
            self.processes.remove(running.process)

    # -------------------------------------------------------------------------------- traffic

    def ask(self, port, body):
        """One request: status and body, or 0 and what went wrong."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        payload = (self.work / f"body-{body}.json").read_bytes()
        try:
            connection.request("POST", PATH, payload, {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error).encode()
        finally:
            connection.close()

    def load(self, port, body, *, conc, options="", limit_s=60):
        """Run the load client to its end: what it counted, times in microseconds."""
        words = [str(self.work / "load"), "-p", str(port), "-c", str(conc), "-t", str(limit_s)]
        words += ["-b", str(self.work / f"body-{body}.json"), *shlex.split(options)]
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=limit_s + 30, check=True)
        return json.loads(done.stdout)

    def measured(self, running, body, *, conc, options="", limit_s=60):
        """`load`, the CPU seconds it took the target, and those it had to wait for."""
        before, waited = running.cpu_s(), running.waited_s()
        counted = self.load(running.port, body, conc=conc, options=options, limit_s=limit_s)
        counted["cpu_s"] = running.cpu_s() - before
        counted["waited_s"] = running.waited_s() - waited
        if running.process and running.process.poll() is not None:
            msg = f"ended under load (exit {running.process.returncode})"
            raise TargetError(msg)
        return counted

    # ----------------------------------------------------------------------------------- mock

    def mock(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.mock_port, timeout=10)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def answer_with(self, *, chunks=128, delay_ms=0, latency_ms=0):
        """How the mock answers from now on; its counters start at 0."""
        self.mock(
            f"/__ctl?chunks={chunks}&delay_us={int(delay_ms * 1000)}"
            f"&lat_us={int(latency_ms * 1000)}&reset=1"
        )

    def _start_mock(self):
        self._spawn([str(self.work / "mock"), str(self.mock_port)], cpu=self.load_cpu, name="mock")
        for _ in range(400):
            with suppress(OSError):
                self.mock("/__stats")
                return
            time.sleep(POLL_S)
        raise BenchError("the mock did not start")


def bodies():
    """The requests that are sent; each is one file for the load client."""
    words = "Write a short story about a fox. " * 12
    chat = {
        "model": "mock",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": words},
        ],
        "max_tokens": 128,
        "temperature": 0.7,
    }
    picture = {"url": "data:image/png;base64," + "iVBORw0KGgoAAAANSUhE" * 524_288}
    parts = [
        {"type": "text", "text": "What is in this image?"},
        {"type": "image_url", "image_url": picture},
    ]
    return {
        "json": chat,
        "stream": {**chat, "stream": True, "stream_options": {"include_usage": True}},
        "stream-no-usage": {**chat, "stream": True},
        "big": {**chat, "messages": [{"role": "user", "content": parts}]},
    }


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def end(process):
    """Ask the process to stop; after five seconds end it and what it started."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
    with suppress(ProcessLookupError):  # it leads a group of its own
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
