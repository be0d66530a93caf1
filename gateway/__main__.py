"""`python -m gateway` is the `tiergate` command."""

from gateway.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
