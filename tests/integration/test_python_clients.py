"""The official OpenAI client, unchanged but for its base URL, gets from a real engine what it asks.

It never retries here: a retry would hide a fault.
"""

import array
import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Literal

import openai
import pydantic
import pytest
from openai.types.chat import ChatCompletionChunk

from tests.support.llama import MODEL, Llama
from tests.support.served import Served
from tests.support.tiny_model import ONE_TOOL_CALL, WORDS

HELLO = [{"role": "user", "content": "hello"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 10}},
            "required": ["city"],
        },
    },
}


@pytest.fixture
def client(gateway: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.base_url, api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(gateway: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=gateway.base_url, api_key="unused", max_retries=0
    ) as client:
        yield client


def text_of(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


# ---------------------------------------------------------------------------------------- answers


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=7)
    assert WORDS.fullmatch(answer.choices[0].message.content)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 7
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 7
    assert answer.model == MODEL
    assert answer._request_id.startswith("req-")


async def test_many_chats_at_once(async_client: openai.AsyncOpenAI) -> None:
    async def one(tokens: int) -> int:
        answer = await async_client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=tokens
        )
        assert WORDS.fullmatch(answer.choices[0].message.content)
        return answer.usage.completion_tokens

    lengths = list(range(1, 25))  # six times as many as the engine has slots
    assert await asyncio.gather(*map(one, lengths)) == lengths


def test_a_stream_brings_the_same_words_as_the_engine(client: openai.OpenAI, llama: Llama) -> None:
    question = {
        "model": MODEL,
        "messages": HELLO,
        "max_tokens": 30,
        "temperature": 0,
        "extra_body": {"cache_prompt": False},
    }
    with openai.OpenAI(base_url=llama.base_url, api_key="unused") as direct:
        said = direct.chat.completions.create(**question).choices[0].message.content
    chunks = list(client.chat.completions.create(**question, stream=True))
    assert text_of(chunks) == said
    assert chunks[-1].choices[0].finish_reason == "length"


def test_usage_of_a_stream_comes_only_if_asked_for(client: openai.OpenAI) -> None:
    question = {"model": MODEL, "messages": HELLO, "max_tokens": 5, "stream": True}
    not_asked = list(client.chat.completions.create(**question))
    asked = list(client.chat.completions.create(**question, stream_options={"include_usage": True}))
    refused = list(
        client.chat.completions.create(**question, stream_options={"include_usage": False})
    )
    for chunks in (not_asked, refused):
        assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    *_, last = asked
    assert last.choices == []
    assert last.usage.completion_tokens == 5
    assert all(chunk.usage is None for chunk in asked[:-1])


async def test_async_streams(async_client: openai.AsyncOpenAI) -> None:
    async def one(tokens: int) -> str:
        stream = await async_client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=tokens, stream=True
        )
        return text_of([chunk async for chunk in stream])

    texts = await asyncio.gather(*(one(tokens) for tokens in range(1, 9)))
    assert [len(text.split()) for text in texts] == list(range(1, 9))


def test_the_stream_helper_of_the_client(client: openai.OpenAI) -> None:
    class Weather(pydantic.BaseModel):
        city: Annotated[str, pydantic.Field(max_length=10)]

    with client.chat.completions.stream(
        model=MODEL, messages=HELLO, max_tokens=200, response_format=Weather
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert isinstance(final.choices[0].message.parsed, Weather)


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="once upon", max_tokens=4)
    assert WORDS.fullmatch(answer.choices[0].text)
    stream = client.completions.create(model=MODEL, prompt="once upon", max_tokens=4, stream=True)
    chunks = list(stream)
    assert WORDS.fullmatch("".join(chunk.choices[0].text for chunk in chunks))
    # Asked or not, this engine tells it here, in its last chunk; that's the engine's affair.
    assert chunks[-1].usage.completion_tokens == 4


def test_responses(client: openai.OpenAI) -> None:
    answer = client.responses.create(model=MODEL, input="hello", max_output_tokens=4)
    assert WORDS.fullmatch(answer.output_text)
    assert answer.usage.output_tokens == 4
    events = list(
        client.responses.create(model=MODEL, input="hello", max_output_tokens=4, stream=True)
    )
    assert events[-1].type == "response.completed"
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert "".join(deltas) == events[-1].response.output_text
    assert events[-1].response.usage.output_tokens == 4


# ------------------------------------------------------------------------------------------ tools


def test_a_tool_is_called(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        tools=[WEATHER],
        tool_choice="required",
        max_tokens=200,
        **ONE_TOOL_CALL,
    )
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls
    assert call.function.name == "weather"
    assert isinstance(json.loads(call.function.arguments)["city"], str)

    told = client.chat.completions.create(
        model=MODEL,
        messages=[
            *HELLO,
            choice.message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "rain"},
        ],
        tools=[WEATHER],
        max_tokens=3,
    )
    assert len(told.choices[0].message.content.split()) == 3


def test_a_tool_is_called_in_a_stream(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=HELLO,
            tools=[WEATHER],
            tool_choice="required",
            max_tokens=200,
            stream=True,
            **ONE_TOOL_CALL,
        )
    )
    parts = [part for c in chunks for part in c.choices[0].delta.tool_calls or []]
    assert [part.function.name for part in parts if part.function.name] == ["weather"]
    arguments = "".join(part.function.arguments or "" for part in parts)
    assert isinstance(json.loads(arguments)["city"], str)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_an_answer_of_a_given_form(client: openai.OpenAI) -> None:
    schema = WEATHER["function"]["parameters"]
    answer = client.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        response_format={"type": "json_schema", "json_schema": {"name": "w", "schema": schema}},
        max_tokens=200,
    )
    assert isinstance(json.loads(answer.choices[0].message.content)["city"], str)


# ------------------------------------------------------------------------------ embeddings, models


@pytest.mark.parametrize("encoding", ["float", "base64", openai.omit])
def test_embeddings(client: openai.OpenAI, encoding: Literal["float", "base64"]) -> None:
    answer = client.embeddings.create(
        model=MODEL, input=["hello", "hello", "another"], encoding_format=encoding
    )
    vectors = [item.embedding for item in answer.data]
    if encoding == "base64":
        vectors = [array.array("f", base64.b64decode(text)).tolist() for text in vectors]
    first, second, third = vectors
    assert first == pytest.approx(second, abs=1e-5)
    assert first != pytest.approx(third, abs=1e-5)
    assert answer.usage.prompt_tokens > 0


def test_models_are_listed_and_retrieved(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("no-such-model")
    assert caught.value.code == "model_not_found"


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_model(client: openai.OpenAI, *, stream: bool) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=HELLO, stream=stream)
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"
    assert "gpt-9" in caught.value.message
    assert MODEL in caught.value.message  # what there is
    assert caught.value.request_id.startswith("req-")


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_engine_refuses(client: openai.OpenAI, *, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages="hello", stream=stream)
    error = caught.value
    assert error.body == {
        "message": "Expected 'messages' to be an array",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


def test_a_prompt_longer_than_the_context(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="context size") as caught:
        client.completions.create(model=MODEL, prompt="x" * 40_000, max_tokens=1)
    assert caught.value.type == "exceed_context_size_error"


def test_a_body_that_is_no_json(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post(
            "/chat/completions",
            cast_to=object,
            content=b'{"model": "tiny", ',
            options={"headers": {"content-type": "application/json"}},
        )
    assert caught.value.code == "invalid_body"


def test_a_base_url_without_v1(gateway: Served) -> None:
    with (
        openai.OpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as lost,
        pytest.raises(openai.NotFoundError, match="Did you mean /v1/chat/completions") as caught,
    ):
        lost.chat.completions.create(model=MODEL, messages=HELLO)
    assert caught.value.code == "unknown_route"
