"""The real parts that integration tests share: one llama.cpp server, and tiergate before it."""

import os
from collections.abc import Iterator

import pytest

from tests.support.llama import Llama, llama_server
from tests.support.served import Served, served

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks the internet for prices


@pytest.fixture(scope="session")
def llama() -> Iterator[Llama]:
    """A real engine, with four slots."""
    with llama_server() as running:
        yield running


@pytest.fixture(scope="session")
def gateway(llama: Llama) -> Iterator[Served]:
    """The gateway as a process of its own, in front of it."""
    with served(llama.url) as running:
        yield running
