"""What a real engine counted stands in the request log, in whatever way it was asked."""

from typing import Any

import httpx
import pytest

from tests.support.llama import MODEL
from tests.support.programs import until
from tests.support.served import Served

HELLO = {"messages": [{"role": "user", "content": "hello"}]}
ASKS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {**HELLO, "max_tokens": 7},
    "/v1/completions": {"prompt": "hello", "max_tokens": 7},
    "/v1/messages": {**HELLO, "max_tokens": 7},
    "/v1/responses": {"input": "hello", "max_output_tokens": 7},
}
WITH_USAGE = {"stream_options": {"include_usage": True}}


def record_of(gateway: Served, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask, and find the record."""
    answer = httpx.post(gateway.url + path, json={"model": MODEL, **body}, timeout=60)
    assert answer.status_code == 200, answer.text

    def found() -> list[dict[str, Any]]:
        return [r for r in gateway.records() if r["id"] == answer.headers["x-request-id"]]

    [record] = until(found, "the record is written", within_s=10)
    return record


@pytest.mark.parametrize(
    "way",
    [{}, {"stream": True}, {"stream": True, **WITH_USAGE}],
    ids=["whole", "stream", "stream that asked"],
)
@pytest.mark.parametrize("path", ASKS)
def test_usage_is_recorded(gateway: Served, path: str, way: dict[str, Any]) -> None:
    record = record_of(gateway, path, ASKS[path] | way)
    usage = record["usage"]
    assert usage["output_tokens"] == 7
    # "hello" and what the template puts around it; a part of it may have been in the cache
    assert usage["input_tokens"] == (5 if path == "/v1/completions" else 24)
    assert usage.get("cached_tokens", 0) < usage["input_tokens"]
    assert record["outcome"] == "ok"


def test_usage_of_embeddings_is_recorded(gateway: Served) -> None:
    usage = record_of(gateway, "/v1/embeddings", {"input": "hello"})["usage"]
    assert usage["input_tokens"] == 5
    assert "output_tokens" not in usage
