"""Text to addresses: where to listen, where a worker is, where files are. Nothing is looked up.

A `ValueError` from here says what would be right; it never repeats the text, which may hold a
password.
"""

import re
from ipaddress import IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

from gateway.settings import Listen

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")
_PORT = re.compile(r"[0-9]{1,5}")
_LISTEN = re.compile(r"(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[^:]*)")
_ENDPOINTS = ("/chat/completions", "/completions", "/embeddings", "/responses", "/models")

_LISTEN_SHAPE = (
    'must be HOST:PORT such as 127.0.0.1:8080, ":8080" for every interface, "[::1]:8080"'
)
_HIGHEST_PORT = 65535
_PORT_SHAPE = "the port must be a number from {} to 65535"


def listen_address(value: object) -> Listen:
    """`HOST:PORT`, `:PORT` (every interface), `[IPv6]:PORT`, or a port alone (loopback).

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(_LISTEN_SHAPE)  # noqa: TRY004  one kind of error for one kind of fault
    text = str(value)
    if text.isascii() and text.isdigit():
        return Listen(port=_port(text, lowest=0))
    match = _LISTEN.fullmatch(text)
    if match is None:
        raise ValueError(_LISTEN_SHAPE)
    port = _port(match["port"], lowest=0)
    if match["v6"] is not None:
        return Listen(_ipv6(match["v6"]), port)
    host = match["host"]
    if host and not _HOST.fullmatch(host):
        raise ValueError(_LISTEN_SHAPE)
    return Listen(host.lower(), port)


def file_path(value: object) -> str:
    """The path, unchanged.

    Raises:
        ValueError: it is empty or holds a control character.
    """
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("must be a path in printable characters")
    return value


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`; of names that is sure of localhost only."""
    if host.rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def worker_url(value: object) -> str:
    """The URL's normal form: without the scheme's own port, and without `/v1` or `/` at its end.

    Raises:
        ValueError: it isn't the base URL of an HTTP server, or it holds a password or a query.
    """
    text = value if isinstance(value, str) else ""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be a URL in printable ASCII without spaces")
    if "://" not in text:
        raise ValueError("must begin with http:// or https://, as in http://10.0.0.5:8000")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError(
            "must be a URL such as http://10.0.0.5:8000 or http://[::1]:8000"
        ) from None
    if parts.scheme not in {"http", "https"}:
        raise ValueError("must begin with http:// or https://")
    if "@" in text:
        raise ValueError("must hold no user or password; put the worker's key under api_key")
    if "?" in text or "#" in text:
        raise ValueError("must end before any ? or #; a key belongs under api_key")
    return f"{parts.scheme}://{_authority(parts)}{_prefix(parts.path)}"


def _authority(parts: SplitResult) -> str:
    host = parts.hostname or ""
    rest = parts.netloc.rpartition("]")[2] if "[" in parts.netloc else parts.netloc
    if "[" in parts.netloc:
        host = f"[{_ipv6(host)}]"
    elif not _HOST.fullmatch(host):
        raise ValueError("must name a host, as in http://10.0.0.5:8000")
    _, colon, port_text = rest.partition(":")
    if not colon:
        return host
    port = _port(port_text, lowest=1)
    goes_without_saying = port == {"http": 80, "https": 443}[parts.scheme]
    return host if goes_without_saying else f"{host}:{port}"


def _prefix(path: str) -> str:
    path = path.rstrip("/")
    if path.endswith(_ENDPOINTS):
        raise ValueError(
            "must be the server's base URL, without an endpoint such as /chat/completions"
        )
    return path.removesuffix("/v1").rstrip("/")


def _port(text: str, *, lowest: int) -> int:
    if not _PORT.fullmatch(text) or not lowest <= int(text) <= _HIGHEST_PORT:
        raise ValueError(_PORT_SHAPE.format(lowest))
    return int(text)


def _ipv6(text: str) -> str:
    try:
        return str(IPv6Address(text))
    except ValueError:
        raise ValueError("the part in brackets must be an IPv6 address, as in [::1]:8080") from None
