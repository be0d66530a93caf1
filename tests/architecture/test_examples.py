"""What the repository shows, works."""

from pathlib import Path

import pytest

from gateway import config

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_example_loads(path: Path) -> None:
    settings = config.load(path.read_text(), path.name, env={})
    assert settings.pools
    assert config.load(config.render(settings), "rendered", env={}) == settings
