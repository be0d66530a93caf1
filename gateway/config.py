"""The configuration: a file or a command line to frozen `Settings`, whole or not at all."""

from collections.abc import Sequence

from gateway import addresses
from gateway.errors import ConfigError
from gateway.settings import Listen, PoolSettings, Settings, WorkerSettings
from policies.errors import Problem

__all__ = ["Settings", "from_urls"]


def from_urls(
    urls: Sequence[str],
    *,
    listen: str | None = None,
    data: str | None = None,
    auth: str | None = None,
) -> Settings:
    """The settings of `tiergate serve URL URL …`: one pool, whose models are those its workers report.

    Raises:
        ConfigError: with every problem of every argument.
    """
    workers = tuple(WorkerSettings(url=addresses.worker_url(url)) for url in urls)
    return Settings(
        pools=(PoolSettings(name="default", workers=workers),),
        listen=Listen() if listen is None else addresses.listen_address(listen),
        **({} if data is None else {"data": data}),
    )
