"""The servers that are measured: how each is started, and whether it can be on this machine.

One row per target. `direct` is the mock itself, without anything before it.
"""

import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
BASE = "bare_aiohttp"
OURS = "tiergate"
DIRECT = "direct"


@dataclass(frozen=True)
class Target:
    """A command in which the names of `Places` are filled in; what must be there for it to run."""

    name: str
    command: str = ""
    environment: dict = field(default_factory=dict)
    needs_modules: tuple = ()
    needs_program: str = ""


@dataclass(frozen=True)
class Places:
    """What a command may name between braces."""

    python: str  # that of the bare peers and of tiergate
    peers: str  # folder of the other peers' environments
    nginx: str
    here: str = str(HERE)
    repository: str = str(REPOSITORY)


TARGETS = {
    target.name: target
    for target in (
        Target(DIRECT),
        Target(
            "raw_relay",
            "{python} {here}/peers/raw_relay.py {port} {upurl}",
            needs_modules=("orjson", "uvloop"),
        ),
        Target(
            BASE,
            "{python} {here}/peers/bare_aiohttp.py {port} {upurl}",
            needs_modules=("aiohttp", "orjson", "uvloop"),
        ),
        Target("nginx", "{nginx} -c {scratch}/nginx.conf -p {scratch}", needs_program="{nginx}"),
        Target(
            "vllm-router",
            "{peers}/v-vllm-router/bin/vllm-router --host 127.0.0.1 --port {port}"
            " --worker-urls {upurl} --policy round_robin --prometheus-port {port2}"
            " --log-level warning --max-concurrent-requests 4096",
            needs_program="{peers}/v-vllm-router/bin/vllm-router",
        ),
        Target(
            OURS,
            "{python} -m gateway serve {upurl} --listen 127.0.0.1:{port}",
            # compiled once, as an installed package is
            environment={"PYTHONPATH": "{repository}", "PYTHONDONTWRITEBYTECODE": ""},
            needs_modules=("uvloop", "httptools"),
        ),
    )
}


def nginx_program():
    """Debian keeps it outside an ordinary user's path."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin") or ""


def missing(target, places):
    """Why the target cannot run here, or an empty string."""
    if target.needs_program:
        program = target.needs_program.format(**vars(places))
        if not (program and shutil.which(program)):
            return "not installed (bench/peers.sh)"
    absent = [name for name in target.needs_modules if not util.find_spec(name)]
    return f"this Python has no {', '.join(absent)}" if absent else ""


def command_line(target, places, *, port, port2, upstream_port, scratch):
    """The words to start it with, and its additions to the environment."""
    names = {
        **vars(places),
        "port": port,
        "port2": port2,
        "up": f"127.0.0.1:{upstream_port}",
        "upurl": f"http://127.0.0.1:{upstream_port}",
        "scratch": scratch,
    }
    if target.name == "nginx":
        text = (HERE / "peers" / "nginx.conf.in").read_text()
        for mark, name in (("@PORT@", "port"), ("@UP@", "up"), ("@DIR@", "scratch")):
            text = text.replace(mark, str(names[name]))
        (Path(scratch) / "nginx.conf").write_text(text)
    words = shlex.split(target.command.format(**names))
    return words, {key: value.format(**names) for key, value in target.environment.items()}


def versions(names, places):
    """What is compared, by version, for the head of a report."""
    found = []
    if OURS in names:
        found.append(f"tiergate {_distribution('tiergate')}{_revision()}")
    found += [f"{each} {_distribution(each)}" for each in ("aiohttp", "uvloop", "orjson")]
    if "nginx" in names:
        text = _output([places.nginx, "-v"])
        found.append(f"nginx {text.partition('nginx/')[2].split()[0] if 'nginx/' in text else '?'}")
    if "vllm-router" in names:
        text = _output([f"{places.peers}/v-vllm-router/bin/pip", "show", "vllm-router"])
        version = re.search(r"^Version: (\S+)", text, re.MULTILINE)
        found.append(f"vllm-router {version[1] if version else '?'}")
    return ", ".join(found)


def _distribution(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "?"


def _revision():
    text = _output(["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"]).strip()
    return f" ({text})" if re.fullmatch(r"[0-9a-f]{7,}", text) else ""


def _output(words):
    try:
        done = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=20,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout
