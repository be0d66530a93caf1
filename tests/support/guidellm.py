"""guidellm, a load generator by other people, in an environment of its own.

It stands on torch and transformers: 1.5 GB, and versions of libraries that are not ours to choose.
So it lives in the user's cache folder, where the first test that asks for it puts it once, with the
network. A run needs no network.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.cli.demo_worker import packaged_model

VERSION = "0.8.1"
# PyPI's torch for Linux carries CUDA, gigabytes for nothing. A CPU build of the same version wins
# over it wherever pip is told of one, by PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS: "+cpu" sorts above.
REQUIREMENTS = [
    f"guidellm=={VERSION}",
    "torch==2.13.0",
    "transformers==5.24.0",
    "gguf==0.19.0",
]

# guidellm measures prompts with a tokenizer in a folder, as the hub has them; a GGUF file holds
# what is needed to make one.
MAKE_TOKENIZER = """
import sys, transformers
folder, name, out = sys.argv[1:]
transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)
"""

INSTALL_S = 1200.0
ASIDE_S = 120.0  # what a run needs besides the load: imports, prompts, the report
SLOWEST_TOKENS_PER_S = 4.0  # of a real model on a busy machine

# No hub is asked for anything, and one process makes the load: four would only start more slowly.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "GUIDELLM__MAX_WORKER_PROCESSES": "1"}


@dataclass(frozen=True)
class Load:
    """Streamed chats of exactly this size, `streams` of them at any time."""

    model: str
    requests: int
    streams: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Run:
    """What guidellm measured; times are medians."""

    successful: int
    errored: int
    incomplete: int
    output_tokens: set[int]  # how many an answer had: one number if all are alike
    cached_tokens: set[int]
    tokens_per_s: float
    ttft_ms: float
    itl_ms: float
    errors: list[str]


class Guidellm:
    """An installed one."""

    def __init__(self, home: Path) -> None:
        self.python = home / "bin" / "python"
        self.command = home / "bin" / "guidellm"
        self.tokenizer = home / "tokenizer"

    def run(self, url: str, load: Load, folder: Path) -> Run:
        """Put the load on `url` and wait for its end."""
        report = folder / "report.json"
        report.unlink(missing_ok=True)
        backend = {
            "kind": "openai_http",
            "target": url,
            "model": load.model,
            # It asks first whether the server is well, at an address that isn't OpenAI's.
            "api_routes": {"/health": "v1/models"},
            # Every run has the same prompts. The engine must not remember them from the one before.
            "extras": {"body": {"cache_prompt": False, "temperature": 0}},
        }
        data = f"prompt_tokens={load.prompt_tokens},output_tokens={load.output_tokens}"
        _call(
            [
                *(self.command, "run", "--disable-console"),
                *("--backend", json.dumps(backend)),
                *("--profile", f"kind=concurrent,streams={load.streams}"),
                *("--constraint", f"kind=max_requests,count={load.requests}"),
                *("--tokenizer", f"kind=hf_auto,model={self.tokenizer}"),
                # An exact number of output tokens makes it send `ignore_eos`.
                *("--data", f"kind=synthetic_text,{data}"),
                *("--output", f"kind=json,path={report}"),
            ],
            folder,
            ASIDE_S + load.requests * load.output_tokens / SLOWEST_TOKENS_PER_S,
        )
        return _read(json.loads(report.read_text())["benchmarks"][0])


def guidellm() -> Guidellm:
    """The one in the cache folder, made if it isn't there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tiergate-tests"
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / f"guidellm-{VERSION}"
    with (cache / f"guidellm-{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once
        done = home / "installed.txt"  # written last: a broken installation has none
        wanted = "\n".join(REQUIREMENTS)
        if not (done.exists() and done.read_text() == wanted):
            _install(home)
            done.write_text(wanted)
    return Guidellm(home)


def _install(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    made = Guidellm(home)
    _call([sys.executable, "-m", "venv", home], home.parent, INSTALL_S)
    pip = [made.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _call([*pip, *REQUIREMENTS], home, INSTALL_S)
    model = packaged_model()
    _call(
        [made.python, "-c", MAKE_TOKENIZER, model.parent, model.name, made.tokenizer],
        home,
        INSTALL_S,
    )


def _call(command: list[str | Path], folder: Path, within_s: float) -> None:
    """Run it in `folder`; if it fails, say what it said. Its children end with it."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=within_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said


def _read(benchmark: dict[str, Any]) -> Run:
    requests, metrics = benchmark["requests"], benchmark["metrics"]

    def measured(name: str, statistic: str) -> float:
        return (metrics[name]["successful"] or {}).get(statistic, 0.0)

    return Run(
        successful=len(requests["successful"]),
        errored=len(requests["errored"]),
        incomplete=len(requests["incomplete"]),
        output_tokens={request["output_tokens"] for request in requests["successful"]},
        cached_tokens={request["cached_tokens"] or 0 for request in requests["successful"]},
        tokens_per_s=measured("output_tokens_per_second", "mean"),
        ttft_ms=measured("time_to_first_token_ms", "median"),
        itl_ms=measured("inter_token_latency_ms", "median"),
        errors=sorted({str(request["info"]["error"]) for request in requests["errored"]}),
    )
