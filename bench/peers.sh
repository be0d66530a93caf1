#!/bin/sh
# Brings what bench/run.py compares tiergate with, beyond the bare peers, which need only what .venv has.
#   bench/peers.sh [FOLDER]     default: $BENCH_PEERS, else bench/work/peers
# Then: bench/run.py --peers FOLDER (or BENCH_PEERS=FOLDER). A peer that is not there is left out of a run, and named.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
folder=${1:-${BENCH_PEERS:-$here/work/peers}}
mkdir -p "$folder"

router=$folder/v-vllm-router
if [ ! -x "$router/bin/vllm-router" ]; then
    "${PYTHON:-python3}" -m venv "$router"
    "$router/bin/pip" install --quiet --disable-pip-version-check vllm-router
fi
"$router/bin/pip" --disable-pip-version-check show vllm-router | sed -n 2p

PATH=$PATH:/usr/sbin:/usr/local/sbin
if ! command -v nginx >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq nginx-light
        # The package also starts a web server on port 80, which nobody asked for.
        if command -v systemctl >/dev/null; then systemctl disable --quiet --now nginx || true; fi
    else
        echo "nginx: not here; as root: apt-get install nginx-light" >&2
        exit 0
    fi
fi
nginx -v
