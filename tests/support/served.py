"""tiergate as its users run it: a process of its own, started by its command."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import psutil

from tests.support.programs import Program, program, until


class Served:
    """A gateway process.

    Attributes:
        url: without `/v1`.
        program: its process.
    """

    def __init__(self, url: str, running: Program) -> None:
        self.url = url
        self.program = running

    @property
    def base_url(self) -> str:
        """For OpenAI clients."""
        return f"{self.url}/v1"

    def ready(self) -> bool:
        """Whether it says that it can serve."""
        return httpx.get(f"{self.url}/readyz").status_code == 200

    def connections_to(self, url: str) -> set[int]:
        """Its open connections to a worker, by their own ports."""
        port = int(url.rpartition(":")[2])
        connections = psutil.Process(self.program.pid).net_connections("tcp")
        return {c.laddr.port for c in connections if c.raddr and c.raddr.port == port}

    def records(self) -> list[dict[str, Any]]:
        """Its request log so far: a record for each request that has ended."""
        return [
            json.loads(line)
            for line in self.program.out().splitlines(keepends=True)
            if line.endswith("\n")
        ]


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[Served]:
    """`tiergate serve ARGUMENTS` on a free port, ready, for the length of a block."""
    with program("gateway", "serve", *arguments, "--listen", "127.0.0.1:0") as running:
        gateway = Served(running.wait_line("listening on ", running.err), running)
        until(gateway.ready, "the gateway is ready")
        yield gateway
