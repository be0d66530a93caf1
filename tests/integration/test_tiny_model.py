"""The model of the tests is the same on every machine."""

from pathlib import Path

from tests.support import tiny_model


def test_it_is_made_the_same_every_time(tmp_path: Path) -> None:
    tiny_model.write(tmp_path / "again.gguf")
    made = (tmp_path / "again.gguf").read_bytes()
    assert made == tiny_model.tiny_model().read_bytes()
    assert len(made) < 1_000_000
