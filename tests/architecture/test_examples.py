"""What the repository shows, works."""

from pathlib import Path

import pytest

from gateway import config

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_example_loads(path: Path) -> None:
    assert config.load(path.read_text(), path.name, env={}).pools
