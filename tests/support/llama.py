"""A real llama.cpp server with the tiny model, and what it says of itself.

Tests see by its own readings what reached it, and what it was told to stop.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx

from tests.support.programs import Program, program
from tests.support.tiny_model import CONTEXT, tiny_model

MODEL = "tiny"
SLOTS = 4


class Llama:
    """The server.

    Attributes:
        url: without `/v1`.
        program: its process.
    """

    def __init__(self, url: str, running: Program) -> None:
        self.url = url
        self.program = running
        self._client = httpx.Client(base_url=url, timeout=30)

    @property
    def base_url(self) -> str:
        """For OpenAI clients."""
        return f"{self.url}/v1"

    def slots(self) -> list[dict[str, Any]]:
        """What each slot does. The server answers between two batches of work."""
        return self._get("/slots").json()

    def busy(self) -> int:
        """How many slots work on a request."""
        return sum(slot["is_processing"] for slot in self.slots())

    def metrics(self) -> dict[str, float]:
        """Its counters and gauges, without the prefix of their names."""
        lines = self._get("/metrics").text.splitlines()
        pairs = (line.split() for line in lines if line and not line.startswith("#"))
        return {name.removeprefix("llamacpp:"): float(value) for name, value in pairs}

    def close(self) -> None:
        """Take no more readings."""
        self._client.close()

    def _get(self, path: str) -> httpx.Response:
        return self._client.get(path).raise_for_status()


@contextlib.contextmanager
def llama_server(*, slots: int = SLOTS, alias: str = MODEL) -> Iterator[Llama]:
    """Start one and stop it. One thread: more would spin on a machine with other work."""
    with program(
        *("gateway.cli.demo_worker", "--model", str(tiny_model()), "--alias", alias),
        *(
            "--slots",
            str(slots),
            "--context",
            str(CONTEXT),
            "--threads",
            "1",
            "--temperature",
            "0.8",
        ),
    ) as running:
        url = running.wait_line("ready ", running.out)
        with contextlib.closing(Llama(url, running)) as llama:
            yield llama
