"""The clients of the Node world, unchanged: `openai`, and `ai` with `@ai-sdk/openai-compatible`.

One Node process runs all cases; each test judges one.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.llama import MODEL, Llama
from tests.support.programs import until
from tests.support.served import Served
from tests.support.tiny_model import ONE_TOOL_CALL, WORDS

FOLDER = Path(__file__).parent / "node"
INSTALL_S, RUN_S = 600, 100

# The first test waits for `npm ci`.
pytestmark = pytest.mark.timeout(INSTALL_S + RUN_S)


def run(*command: str, within_s: int) -> str:
    """Its standard output; a failure shows both."""
    program = shutil.which(command[0])
    assert program is not None, f"{command[0]} isn't installed"
    done = subprocess.run(
        (program, *command[1:]),
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def node_modules() -> None:
    """The packages of the lock file."""
    # npm writes its own copy of the lock file last: where the two agree, all of it is there.
    installed = FOLDER / "node_modules" / ".package-lock.json"
    wanted = json.loads((FOLDER / "package-lock.json").read_text())["packages"]
    del wanted[""]
    if installed.exists() and json.loads(installed.read_text())["packages"] == wanted:
        return
    run("npm", "ci", "--no-audit", "--no-fund", within_s=INSTALL_S)


@pytest.fixture(scope="session")
def results(node_modules: None, gateway: Served, llama: Llama) -> dict[str, Any]:
    """What each case got."""
    del node_modules
    until(lambda: llama.busy() == 0, "the engine has nothing to do")
    settings = json.dumps(ONE_TOOL_CALL)
    return json.loads(run("node", "clients.mjs", gateway.base_url, MODEL, settings, within_s=RUN_S))


def value(result: dict[str, Any]) -> Any:
    assert "error" not in result, result["error"]
    return result["value"]


# ----------------------------------------------------------------------------------------- openai


def test_openai_chat(results: dict[str, Any]) -> None:
    answer = value(results["openai_chat"])
    assert WORDS.fullmatch(answer["text"])
    assert answer["tokens"] == 5
    assert answer["requestId"].startswith("req-")


def test_openai_stream(results: dict[str, Any]) -> None:
    answer = value(results["openai_stream"])
    assert len(answer["text"].split()) == 5
    assert answer["withoutChoices"] == 0
    assert answer["usage"] == []


def test_openai_stream_with_usage(results: dict[str, Any]) -> None:
    answer = value(results["openai_stream_with_usage"])
    assert len(answer["text"].split()) == 5
    assert answer["withoutChoices"] == 1
    assert [usage["completion_tokens"] for usage in answer["usage"]] == [5]


def test_openai_tool(results: dict[str, Any]) -> None:
    [call] = value(results["openai_tool"])
    assert call["name"] == "weather"
    assert isinstance(json.loads(call["arguments"])["city"], str)


def test_openai_embeddings(results: dict[str, Any]) -> None:
    first, second = value(results["openai_embeddings"])
    assert len(first) == len(second) == 64
    assert first != second


def test_openai_models(results: dict[str, Any]) -> None:
    assert value(results["openai_models"]) == [MODEL]


def test_openai_errors(results: dict[str, Any]) -> None:
    unknown = results["openai_unknown_model"]["error"]
    assert (unknown["name"], unknown["status"]) == ("NotFoundError", 404)
    assert unknown["code"] == "model_not_found"
    refused = results["openai_refused"]["error"]
    assert (refused["name"], refused["status"]) == ("BadRequestError", 400)
    assert "Expected 'messages' to be an array" in refused["message"]


def test_openai_leaves_a_stream(results: dict[str, Any], llama: Llama) -> None:
    assert value(results["openai_abort"]) == 3
    until(lambda: llama.busy() == 0, "the engine has stopped what nobody reads", within_s=5)


# --------------------------------------------------------------------------------------------- ai


def test_ai_generate(results: dict[str, Any]) -> None:
    answer = value(results["ai_generate"])
    assert WORDS.fullmatch(answer["text"])
    assert answer["tokens"] == 5


@pytest.mark.parametrize(("case", "tokens"), [("ai_stream", None), ("ai_stream_with_usage", 5)])
def test_ai_stream(results: dict[str, Any], case: str, tokens: int | None) -> None:
    answer = value(results[case])
    assert len(answer["parts"]) == len("".join(answer["parts"]).split()) == 5
    assert answer["outputTokens"] == tokens
    assert answer["finishReason"] == "length"


def test_ai_tool(results: dict[str, Any]) -> None:
    [call] = value(results["ai_tool"])
    assert call["name"] == "weather"
    assert isinstance(call["input"]["city"], str)


def test_ai_embeddings(results: dict[str, Any]) -> None:
    first, second = value(results["ai_embeddings"])
    assert len(first) == len(second) == 64
    assert first != second


def test_ai_errors(results: dict[str, Any]) -> None:
    error = results["ai_unknown_model"]["error"]
    assert error["status"] == 404
    assert json.loads(error["body"])["error"]["code"] == "model_not_found"
    assert "gpt-9" in error["message"]
