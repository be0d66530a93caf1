"""The page on configuration tells every key and its default, and no other; its examples load."""

import re
from pathlib import Path

import pytest
import yaml

from gateway.config import load, schema

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
SCHEMA = schema()
ENV = {"GPU6_KEY": "sk-secret"}
ROWS = {
    match[1]: [cell.strip() for cell in match[0].strip("|").split(" | ")]
    for match in re.finditer(r"^\| `([a-z_<>.\[\]]+)` \|.*\|$", PAGE, re.MULTILINE)
    if match[0].count(" | ") == 4
}


def documented_keys(part, path=""):
    """Every key of the schema with its part, as the page writes it."""
    if "$ref" in part:
        yield from documented_keys(SCHEMA["$defs"][part["$ref"].rpartition("/")[2]], path)
    for option in part.get("anyOf", ()):
        yield from documented_keys(option, path)
    for key, inner in part.get("properties", {}).items():
        written = f"{path}.{key}".removeprefix(".")
        yield written, inner, key in part.get("required", ())
        yield from documented_keys(inner, written)
    if isinstance(part.get("additionalProperties"), dict):
        yield from documented_keys(part["additionalProperties"], f"{path}.<name>")
    if "items" in part:
        yield from documented_keys(part["items"], f"{path}[]")


KEYS = {key: (part, required) for key, part, required in documented_keys(SCHEMA)}


def test_the_schema_is_walked():
    assert {"listen", "pools.<name>.workers[].api_key", "timeouts.drain_timeout"} <= set(KEYS)


def test_every_key_has_a_row_and_every_row_a_key():
    assert set(ROWS) == set(KEYS)


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_row_tells_the_default(key):
    part, required = KEYS[key]
    _, meaning, kind, default, _ = ROWS[key]
    assert meaning
    assert kind
    if required:
        assert default == "required"
    elif part.get("default") is not None:
        shown = part["default"]
        assert default == f"`{str(shown).lower() if isinstance(shown, bool) else shown}`"
    else:
        assert default in {"left out", "below", "plain HTTP"}


@pytest.mark.parametrize("key", sorted(KEYS))
def test_the_example_of_a_row_loads(key):
    example = ROWS[key][4]
    if example == "below":
        return
    tree = yaml.safe_load(example.strip("`"))
    *parents, _ = re.sub(r"\[\]", ".[]", key).replace("<name>", "chat").split(".")
    for parent in reversed(parents):
        tree = [tree] if parent == "[]" else {parent: tree}
    for path, filler in (
        (("tls",), {"cert": "c.pem", "key": "k.pem"}),
        (("pools", "chat"), {"workers": ["http://gpu1:8000"]}),
        (("pools", "chat", "workers", 0), {"url": "http://gpu1:8000"}),
    ):
        fill(tree, path, filler)
    tree.setdefault("pools", {"chat": {"workers": ["http://gpu1:8000"]}})
    assert load(yaml.safe_dump(tree), "gateway.yaml", ENV)


def fill(tree, path, filler):
    """Add what is required beside the key of the example."""
    for step in path:
        if isinstance(tree, dict) and step not in tree:
            return
        tree = tree[step]
    if isinstance(tree, dict):
        for key, value in filler.items():
            tree.setdefault(key, value)


def test_the_file_on_the_page_loads():
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        assert load(block, "gateway.yaml", ENV)


def test_the_page_names_every_engine():
    engines = KEYS["pools.<name>.workers[].engine"][0]["anyOf"][0]["enum"]
    assert all(f"`{engine}`" in PAGE for engine in engines)
