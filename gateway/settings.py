"""What the gateway was told to do, as frozen values with their defaults.

Nothing here reads a file or the environment: `gateway.config` makes these once, and the
composition root passes their parts on. All times are seconds and all sizes bytes; a time of 0
switches its limit off unless its line says otherwise.
"""

from typing import Literal

import msgspec

Engine = Literal[
    "auto", "vllm", "sglang", "llamacpp", "tgi", "ollama", "tei", "triton", "generic"
]  # "auto": found out by asking the worker

DATA = "./tiergate-data"


class Listen(msgspec.Struct, frozen=True):
    """Where clients connect.

    Attributes:
        host: a name or address, IPv6 without brackets; empty = every interface, IPv4 and IPv6.
        port: 0 = any free one.
    """

    host: str = "127.0.0.1"
    port: int = 8080

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Tls(msgspec.Struct, frozen=True):
    """The certificate clients see: paths of two PEM files, chain and private key."""

    cert: str
    key: str


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One model server.

    Attributes:
        url: `http(s)://host[:port][/prefix]`, without `/v1` or a slash at its end; holds no secret.
        upstream_model: the name under which the worker serves the pool's model; None = taken from
            its `/v1/models`.
        api_key: sent to it as bearer token; None = none. `repr` hides it.
        engine: what kind of server it is.
    """

    url: str
    upstream_model: str | None = None
    api_key: str | None = None
    engine: Engine = "auto"

    def __repr__(self) -> str:
        shown = None if self.api_key is None else "(hidden)"
        return (
            f"WorkerSettings(url={self.url!r}, upstream_model={self.upstream_model!r}, "
            f"api_key={shown}, engine={self.engine!r})"
        )


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Workers that serve the same model.

    Attributes:
        name: of the pool, for logs and metrics.
        model: the name clients ask for; None = the names its workers report.
        workers: at least one; no URL twice.
    """

    name: str
    model: str | None = None
    workers: tuple[WorkerSettings, ...]


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long each wait may take, in seconds."""

    connect_s: float = 5.0  # for a TCP (and TLS) connection to a worker; never off
    first_byte_s: float = 600.0  # from the request's last byte to the answer's first
    between_bytes_s: float = 120.0  # between two reads of one answer
    total_s: float = 3600.0  # from the request's last byte to the answer's last
    # vLLM's server closes idle connections after 5 s: above that, a request meets a closing one
    worker_idle_s: float = 4.0  # an unused worker connection is kept; 0 = closed after each answer
    request_head_s: float = 10.0  # for a request's head, from its first byte
    request_body_s: float = 120.0  # for a request's body, from the end of its head
    client_idle_s: float = 75.0  # an unused client connection is kept
    drain_delay_s: float = 0.0  # on SIGTERM: not ready, but still accepting; 0 = no delay
    drain_timeout_s: float = 120.0  # then: for the streams to finish; 0 = cut at once


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is held at once."""

    body_bytes: int = 32 * 1024**2  # of one request's body, unpacked
    body_memory_bytes: int = 1024**3  # of all bodies held at a moment
    connections: int = 16384  # of clients


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """What is written to the log.

    Attributes:
        requests: a line for every request that has ended.
    """

    requests: bool = True


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        data: the folder for files of the gateway's own.
        auth: "none" = everybody who can connect may ask, and the operator has said so aloud; None =
            the same, but then only this machine can connect.
        tls: None = plain HTTP.
        pools: at least one; no name and no model twice.
    """

    pools: tuple[PoolSettings, ...]
    listen: Listen = Listen()
    data: str = DATA
    auth: Literal["none"] | None = None
    tls: Tls | None = None
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    log: Log = Log()
