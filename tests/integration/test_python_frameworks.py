"""The clients that people have in their programs, unchanged but for their base URL.

They never retry here: a retry would hide a fault.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import anthropic
import httpx
import langchain_openai
import litellm
import openai
import pydantic
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

from tests.support.llama import MODEL
from tests.support.served import Served
from tests.support.tiny_model import ONE_TOOL_CALL, WORDS

# What litellm's own code does with pydantic is not our affair.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211"),
]

HELLO = [{"role": "user", "content": "hello"}]


class Weather(pydantic.BaseModel):
    """The weather in a city."""

    city: Annotated[str, pydantic.Field(max_length=10)]


# Frameworks keep the connections they make for as long as the process lives; these are closed.


@pytest.fixture
def http_client() -> Iterator[httpx.Client]:
    with httpx.Client() as client:
        yield client


@pytest.fixture
async def async_client(gateway: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=gateway.base_url, api_key="unused", max_retries=0
    ) as client:
        yield client


# -------------------------------------------------------------------------------------- anthropic


@pytest.fixture
def claude(gateway: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key="unused", max_retries=0) as client:
        yield client


def test_anthropic_messages(claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(model=MODEL, messages=HELLO, max_tokens=5)
    assert WORDS.fullmatch(answer.content[0].text)
    assert answer.stop_reason == "max_tokens"
    assert answer.usage.output_tokens == 5


def test_anthropic_stream(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(model=MODEL, messages=HELLO, max_tokens=5) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.content[0].text == text
    assert len(text.split()) == final.usage.output_tokens == 5


def test_anthropic_errors(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        claude.messages.create(model="claude-9", messages=HELLO, max_tokens=5)
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError, match="Expected 'content'") as caught:
        claude.messages.create(model=MODEL, messages=[{"role": "user", "content": 5}], max_tokens=5)
    assert caught.value.body["error"]["type"] == "invalid_request_error"


# -------------------------------------------------------------------------------------- langchain


@pytest.fixture
def chat(gateway: Served, http_client: httpx.Client) -> langchain_openai.ChatOpenAI:
    return langchain_openai.ChatOpenAI(
        model=MODEL,
        base_url=gateway.base_url,
        api_key="unused",
        max_retries=0,
        max_tokens=5,
        http_client=http_client,
    )


def test_langchain_chat(chat: langchain_openai.ChatOpenAI) -> None:
    answer = chat.invoke("hello")
    assert WORDS.fullmatch(answer.content)
    assert answer.usage_metadata["output_tokens"] == 5


@pytest.mark.parametrize("stream_usage", [False, True])
def test_langchain_stream(chat: langchain_openai.ChatOpenAI, *, stream_usage: bool) -> None:
    chunks = list(chat.stream("hello", stream_usage=stream_usage))
    assert len("".join(chunk.content for chunk in chunks).split()) == 5
    told = [chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata]
    assert told == ([5] if stream_usage else [])


def test_langchain_tools(chat: langchain_openai.ChatOpenAI) -> None:
    bound = chat.bind_tools([Weather], tool_choice="required")
    answer = bound.bind(max_tokens=200, **ONE_TOOL_CALL).invoke("hello")
    [call] = answer.tool_calls
    assert call["name"] == "Weather"
    assert Weather.model_validate(call["args"])


def test_langchain_embeddings(gateway: Served, http_client: httpx.Client) -> None:
    embeddings = langchain_openai.OpenAIEmbeddings(
        model=MODEL,
        base_url=gateway.base_url,
        api_key="unused",
        max_retries=0,
        check_embedding_ctx_length=False,  # else it fetches a tokenizer of OpenAI's
        http_client=http_client,
    )
    first, second = embeddings.embed_documents(["hello", "another"])
    assert embeddings.embed_query("hello") == pytest.approx(first, abs=1e-5)
    assert first != pytest.approx(second, abs=1e-5)


def test_langchain_errors(chat: langchain_openai.ChatOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        chat.bind(model="gpt-9").invoke("hello")
    assert caught.value.code == "model_not_found"


# ---------------------------------------------------------------------------------------- litellm


@pytest.fixture
def way(gateway: Served) -> Iterator[dict[str, object]]:
    # Its synchronous calls take the thread's event loop, or make one and leave it open.
    with (
        contextlib.closing(asyncio.new_event_loop()) as loop,
        openai.OpenAI(base_url=gateway.base_url, api_key="unused", max_retries=0) as client,
    ):
        asyncio.set_event_loop(loop)
        yield {"client": client}
        asyncio.set_event_loop(None)


def test_litellm_chat(way: dict[str, object]) -> None:
    answer = litellm.completion(f"openai/{MODEL}", HELLO, max_tokens=5, **way)
    assert WORDS.fullmatch(answer.choices[0].message.content)
    assert answer.usage.completion_tokens == 5


async def test_litellm_async_stream(async_client: openai.AsyncOpenAI) -> None:
    stream = await litellm.acompletion(
        f"openai/{MODEL}", HELLO, max_tokens=5, stream=True, client=async_client
    )
    texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert len("".join(texts).split()) == 5


def test_litellm_tools(way: dict[str, object]) -> None:
    tool = openai.pydantic_function_tool(Weather)
    answer = litellm.completion(
        f"openai/{MODEL}",
        HELLO,
        tools=[tool],
        tool_choice="required",
        max_tokens=200,
        **ONE_TOOL_CALL,
        **way,
    )
    [call] = answer.choices[0].message.tool_calls
    assert Weather.model_validate_json(call.function.arguments)


def test_litellm_embeddings(way: dict[str, object]) -> None:
    answer = litellm.embedding(f"openai/{MODEL}", input=["hello", "another"], **way)
    first, second = (item["embedding"] for item in answer.data)
    assert len(first) == len(second)
    assert first != second


def test_litellm_errors(way: dict[str, object]) -> None:
    with pytest.raises(litellm.NotFoundError, match="gpt-9"):
        litellm.completion("openai/gpt-9", HELLO, **way)
    with pytest.raises(litellm.BadRequestError, match="response_format type must be"):
        litellm.completion(f"openai/{MODEL}", HELLO, response_format={"type": "no-such"}, **way)


# ------------------------------------------------------------------------------------ pydantic-ai


@pytest.fixture
def model(async_client: openai.AsyncOpenAI) -> OpenAIChatModel:
    return OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=async_client))


async def test_pydantic_ai_text(model: OpenAIChatModel) -> None:
    agent = Agent(model, model_settings={"max_tokens": 5})
    answer = await agent.run("hello")
    assert len(answer.output.split()) == answer.usage.output_tokens == 5


async def test_pydantic_ai_stream(model: OpenAIChatModel) -> None:
    agent = Agent(model, model_settings={"max_tokens": 5})
    async with agent.run_stream("hello") as answer:
        parts = [part async for part in answer.stream_text(delta=True, debounce_by=None)]
    assert len(parts) > 1
    assert len("".join(parts).split()) == answer.usage.output_tokens == 5


async def test_pydantic_ai_structured_output_by_a_tool(model: OpenAIChatModel) -> None:
    settings = OpenAIChatModelSettings(max_tokens=200, **ONE_TOOL_CALL)
    answer = await Agent(model, output_type=Weather, model_settings=settings).run("hello")
    assert isinstance(answer.output, Weather)
