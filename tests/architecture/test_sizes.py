"""Files and functions stay small enough to be read in one go."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

FILES = sorted(
    path
    for folder in ("gateway", "policies", "cache", "tests", "bench")
    for path in (ROOT / folder).rglob("*.py")
    if not {"node_modules", "work"} & set(path.relative_to(ROOT).parts)
)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_file_and_its_functions_are_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MAX_FILE_LINES
    large = [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert large == []


def test_every_folder_of_python_is_a_package() -> None:
    """Else import-linter doesn't walk it, and no rule holds there."""
    folders = {path.parent for path in FILES if path.is_relative_to(ROOT / "gateway")}
    assert [f for f in folders if not (f / "__init__.py").exists()] == []


def test_packages_hold_nothing_but_their_docstring() -> None:
    for path in FILES:
        if path.name == "__init__.py" and not path.is_relative_to(ROOT / "tests"):
            body = ast.parse(path.read_text()).body
            assert len(body) == 1, path
            assert isinstance(body[0], ast.Expr), path
