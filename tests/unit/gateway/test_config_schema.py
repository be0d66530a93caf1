"""The JSON Schema for editors: it takes what the loader takes, and marks what it refuses."""

import pytest
import yaml

from gateway.config import ConfigError, load, schema

jsonschema = pytest.importorskip("jsonschema")

VALIDATOR = jsonschema.Draft202012Validator(schema())
POOLS = {"pools": {"chat": {"workers": ["http://gpu1:8000"]}}}


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"listen": "127.0.0.1:1", "data": "x", "auth": "none", "tls": {"cert": "c", "key": "k"}},
        {"listen": 8080},
        {"timeouts": {"connect": "5s", "total": 0, "worker_idle": "0", "request_head": "${T:-1s}"}},
        {"limits": {"body": "1.5MB", "body_memory": 2**30, "connections": "${N:-5}"}},
        {"log": {"requests": "${LOG:-true}"}},
        {"pools": {"chat": {"model": "m", "workers": ["${URL:-http://gpu1}"]}}},
        {"pools": {"chat": {"workers": [{"url": "${URL:-http://x}", "engine": "${E:-vllm}"}]}}},
        {"pools": {"a": {"workers": [{"url": "http://x", "api_key": "k", "upstream_model": "u"}]}}},
    ],
    ids=str,
)
def test_it_takes_what_is_loaded(more):
    tree = POOLS | more
    assert load(yaml.safe_dump(tree), "gateway.yaml", {})
    VALIDATOR.validate(tree)


@pytest.mark.parametrize(
    "more",
    [
        {"lisen": "x"},
        {"listen": True},
        {"auth": "nome"},
        {"tls": {"cert": "c"}},
        {"timeouts": {"connect": 5}},
        {"timeouts": {"conect": "5s"}},
        {"limits": {"body": "32 MB"}},
        {"limits": {"connections": 0}},
        {"log": {"requests": "maybe"}},
        {"pools": {}},
        {"pools": {"chat": {"workers": []}}},
        {"pools": {"chat": {"workers": ["gpu1:8000"]}}},
        {"pools": {"chat": {"workers": [{"engine": "vllm"}]}}},
        {"pools": {"chat": {"workers": [{"url": "http://x", "engine": "vlm"}]}}},
    ],
    ids=str,
)
def test_it_marks_what_is_refused(more):
    tree = POOLS | more
    with pytest.raises(ConfigError):
        load(yaml.safe_dump(tree), "gateway.yaml", {})
    assert not VALIDATOR.is_valid(tree)


def test_defaults_are_shown_in_the_units_of_the_file():
    defs = schema()["$defs"]
    assert defs["TimeoutsShape"]["properties"]["first_byte"]["default"] == "10m"
    assert defs["LimitsShape"]["properties"]["body"]["default"] == "32MB"
    assert schema()["properties"]["listen"]["default"] == "127.0.0.1:8080"


def test_every_key_is_described():
    for part in (schema(), *schema()["$defs"].values()):
        for option in (part, *part.get("anyOf", ())):
            for key, inner in option.get("properties", {}).items():
                assert inner["description"], key
