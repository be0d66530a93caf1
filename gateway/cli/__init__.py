"""The `tiergate` command: one module a verb."""
