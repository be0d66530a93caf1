"""What is said of a file that is wrong; a golden file stands beside the text it is refused with."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import ConfigError, load, schema

GOLDEN = Path(__file__).parent / "golden_config"
ENV = {"WORKER_KEY": "sk-secret\n", "HOST_AND_SECRET": "http://user:sk-secret@gpu1", "EMPTY": ""}
FILES = sorted(GOLDEN.glob("*.yaml"))


def told(text, env):
    """The refusal of `text`; empty if it is loaded."""
    try:
        load(text, "gateway.yaml", env)
    except ConfigError as refusal:
        return str(refusal)
    return ""


def refusal_of(text, env, file="gateway.yaml"):
    with pytest.raises(ConfigError) as refusal:
        load(text, file, env)
    assert refusal.value.__cause__ is None  # a cause would show the values in a traceback
    assert refusal.value.__context__ is None
    return str(refusal.value)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_bad_file_is_refused_with_all_its_problems(file):
    refusal = refusal_of(file.read_text(encoding="utf-8"), ENV, file.name)
    assert refusal + "\n" == file.with_suffix(".txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_refusal_is_in_the_words_of_the_file(file):
    refusal = refusal_of(file.read_text(encoding="utf-8"), ENV, file.name)
    for jargon in ("secret@", "sk-", "Input", "valid", "pydantic", "extra", "dict", "str ", "None"):
        assert jargon not in refusal
    *problems, last = refusal.splitlines()
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    assert last == f"{count}; nothing was loaded"


def keys_of(part, defs, path=""):
    """Every key of the schema, as a template of a file in which only it holds a value."""
    if "$ref" in part:
        yield from keys_of(defs[part["$ref"].rpartition("/")[2]], defs, path)
    for option in part.get("anyOf", ()):
        yield from keys_of(option, defs, path)
    for key, inner in part.get("properties", {}).items():
        yield (*path, key)
        yield from keys_of(inner, defs, (*path, key))
    if isinstance(part.get("additionalProperties"), dict):
        yield from keys_of(part["additionalProperties"], defs, (*path, "chat"))
    if "items" in part:
        yield from keys_of(part["items"], defs, (*path, 0))


def nested(path, value):
    for step in reversed(path):
        value = f"[{value}]" if step == 0 else f"{{{step}: {value}}}"
    return value


PATHS = sorted(keys_of(schema(), schema()["$defs"], ()), key=str)


def test_the_paths_are_those_of_the_file():
    assert ("pools", "chat", "workers", 0, "api_key") in PATHS
    assert ("timeouts", "drain_timeout") in PATHS


@pytest.mark.parametrize("path", PATHS, ids=str)
@pytest.mark.parametrize("secret", ["sk-5f3b", "http://sk-5f3b@h", "sk-5f3b\n", "auto sk-5f3b"])
def test_what_came_from_the_environment_is_never_told(path, secret):
    assert "5f3b" not in told(nested(path, '"${SECRET}"'), {"SECRET": secret})


@pytest.mark.parametrize("value", ["12", "1.5", "true", "[1]", "{a: 1}", '""', "x\\y", "-1", "[]"])
@pytest.mark.parametrize("path", PATHS, ids=str)
def test_whatever_a_key_is_given_is_taken_or_refused(path, value):
    refusal = told(nested(path, value), {})
    assert refusal == "" or refusal.endswith("nothing was loaded")


_keys = st.sampled_from(
    ["listen", "pools", "workers", "url", "timeouts", "tls", "auth", "x", "model", "chat", "<<"]
)
_trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
)


@given(_trees)
def test_any_tree_is_taken_or_refused(tree):
    with pytest.raises(ConfigError, match="nothing was loaded"):
        load(yaml.safe_dump(tree), "gateway.yaml", {})


def test_a_problem_next_to_an_unset_variable_is_told_once():
    text = "pools:\n  chat:\n    workers:\n      - ${A}\n      - url: ${B}\n"
    first, second, count = refusal_of(text, {}).splitlines()
    assert first.startswith("gateway.yaml:4  pools.chat.workers[0] = ${A}: set A in the env")
    assert second.startswith("gateway.yaml:5  pools.chat.workers[1].url = ${B}: set B in the env")
    assert count == "2 problems; nothing was loaded"


def test_problems_stand_in_the_order_of_the_lines():
    refusal = refusal_of((GOLDEN / "everything.yaml").read_text(encoding="utf-8"), ENV)
    lines = [int(line.split(":")[1].split()[0]) for line in refusal.splitlines()[:-1]]
    assert lines == sorted(lines)


def test_beyond_loopback_the_lack_of_keys_has_to_be_said_aloud():
    pools = "pools: {chat: {workers: [http://gpu1]}}\n"
    for listen in ("0.0.0.0:80", '":80"', '"[::]:80"', "gpu1:80", "10.0.0.1:80"):
        assert "is beyond loopback" in refusal_of(f"{pools}listen: {listen}", {})
        assert load(f"{pools}listen: {listen}\nauth: none", "gateway.yaml", {}).auth == "none"
    for listen in ("127.0.0.1:80", '"[::1]:80"', "localhost:80", "80"):
        assert load(f"{pools}listen: {listen}", "gateway.yaml", {}).auth is None
