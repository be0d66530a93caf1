"""The running service.

Sockets, workers, telemetry. It stands on `policies` and `cache` and decides nothing itself.
"""
