"""Runs a module as a program that ends when the process that started it does, however that ends.

    python -m gateway.cli.demo_tether MODULE [ARGUMENT…]    with a pipe as standard input

The pipe's other end closes with its owner, even one that was killed; nothing else is read from it.
"""

import os
import runpy
import signal
import sys
import threading

GRACE_S = 5.0


def end_with_parent() -> None:
    """Wait for the end of standard input, then end this process: politely first."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_S)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
