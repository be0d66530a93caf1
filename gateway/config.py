"""The configuration: a file or a command line to frozen `Settings`, whole or not at all.

The only reader of the environment. Pydantic and YAML are loaded when a file is, so that
`tiergate serve URL` starts without them.
"""

import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec.structs import fields, replace

from gateway import addresses
from gateway.errors import ConfigError
from gateway.settings import (
    DATA,
    Limits,
    Listen,
    Log,
    PoolSettings,
    Settings,
    Timeouts,
    Tls,
    WorkerSettings,
)
from policies.errors import Problem
from policies.units import duration_text, size_text
from policies.wording import Path as KeyPath
from policies.wording import presentable

Out = TypeVar("Out")

__all__ = [
    "ConfigError",
    "Settings",
    "check_files",
    "from_urls",
    "load",
    "load_file",
    "override",
    "render",
    "schema",
]

_AUTH_WANTED = (
    "is beyond loopback, where whoever connects may use the workers: "
    "say auth none to allow that, or listen on 127.0.0.1 behind a proxy that checks keys"
)


def load(text: str, file: str, env: Mapping[str, str]) -> Settings:
    """The settings that `text`, the content of `file`, asks for.

    Raises:
        ConfigError: with every problem, sorted by line.
    """
    from gateway import shape  # noqa: PLC0415  pydantic costs a start without a file too much
    from policies import document  # noqa: PLC0415  and so does YAML

    read = document.parse(text, file=file, env=env)
    if read.data is None and read.problems:
        raise _refusal(read.problems)
    settings, misfits = shape.settings_of(read)
    problems = list(read.problems)
    # what couldn't be filled in is None in the tree, and would be told again as missing
    told = {(problem.path, problem.line) for problem in problems}
    problems += [misfit for misfit in misfits if (misfit.path, misfit.line) not in told]
    problems += [read.problem(path, expected) for path, expected in _conflicts(read.data)]
    if problems or settings is None:
        raise _refusal(problems)
    return settings


def load_file(file: str) -> Settings:
    """`load` of a UTF-8 file, with the environment of this process.

    Raises:
        ConfigError: it can't be read, or any of its problems.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "can't be read").lower()
        raise _refusal([Problem(file, 0, "", "", f"can't be read: {reason}")]) from None
    except UnicodeDecodeError:
        raise _refusal([Problem(file, 0, "", "", "must be text in UTF-8")]) from None
    return load(text, file, os.environ)


def from_urls(
    urls: Sequence[str],
    *,
    listen: str | None = None,
    data: str | None = None,
    auth: Literal["none"] | None = None,
) -> Settings:
    """The settings of `tiergate serve URL URL …`: one pool, whose models its workers report.

    Raises:
        ConfigError: with every problem of every argument.
    """
    tree: dict[str, Any] = {
        "listen": str(Listen()) if listen is None else listen,
        "data": DATA if data is None else data,
        "auth": auth,
        "pools": {"default": {"workers": list(urls)}},
    }
    faults = [*_bad_arguments(tree), *_conflicts(tree)]
    if not urls:
        faults.append((("pools",), "name at least one worker, as in http://10.0.0.5:8000"))
    _refuse_arguments(tree, faults)
    workers = tuple(WorkerSettings(url=addresses.worker_url(url)) for url in urls)
    return Settings(
        pools=(PoolSettings(name="default", workers=workers),),
        listen=addresses.listen_address(tree["listen"]),
        data=tree["data"],
        auth=auth,
    )


def override(
    settings: Settings,
    *,
    listen: str | None = None,
    data: str | None = None,
    auth: Literal["none"] | None = None,
) -> Settings:
    """`settings` with what the command line says in place of what a file said.

    Raises:
        ConfigError: with every problem of every argument.
    """
    tree: dict[str, Any] = {
        "listen": str(settings.listen) if listen is None else listen,
        "data": settings.data if data is None else data,
        "auth": settings.auth if auth is None else auth,
        "pools": {},
    }
    _refuse_arguments(tree, [*_bad_arguments(tree), *_conflicts(tree)])
    return replace(
        settings,
        listen=addresses.listen_address(tree["listen"]),
        data=tree["data"],
        auth=tree["auth"],
    )


def check_files(settings: Settings, file: str = "settings") -> list[Problem]:
    """What is wrong with the files that `settings` name; `file` is where they are named.

    Reads the certificate and its key. Writes nothing. Relative paths start where the process does.
    """
    if settings.tls is None:
        return []
    return [Problem(file, 0, *fault) for fault in _certificate_faults(settings.tls)]


def render(settings: Settings) -> str:
    """The gateway.yaml that asks for `settings`; `load` makes an equal one of it.

    What goes without saying is left out. A worker's key is written as `${WORKER_KEY_1}`, each
    different one with a number of its own, for the operator to set.
    """
    lines = [f"listen: {_quoted(str(settings.listen))}", f"data: {_quoted(settings.data)}"]
    if settings.auth is not None:
        lines.append(f"auth: {settings.auth}")
    if settings.tls is not None:
        cert, key = _quoted(settings.tls.cert), _quoted(settings.tls.key)
        lines += ["tls:", f"  cert: {cert}", f"  key: {key}"]
    lines.append("pools:")
    variable_of_key: dict[str, str] = {}
    for pool in settings.pools:
        lines.append(f"  {_quoted(pool.name)}:")
        if pool.model is not None:
            lines.append(f"    model: {_quoted(pool.model)}")
        lines.append("    workers:")
        for worker in pool.workers:
            lines += _worker_lines(worker, variable_of_key)
    for name, section in (
        ("timeouts", settings.timeouts),
        ("limits", settings.limits),
        ("log", settings.log),
    ):
        lines += _section_lines(name, section)
    return "\n".join(lines) + "\n"


def schema() -> dict[str, Any]:
    """JSON Schema of gateway.yaml, for editors."""
    from gateway import shape  # noqa: PLC0415  as in `load`

    return shape.schema()


def _certificate_faults(tls: Tls) -> Iterator[tuple[str, str, str]]:
    readable = True
    for key, name in (("tls.cert", tls.cert), ("tls.key", tls.key)):
        if not Path(name).is_file() or not os.access(name, os.R_OK):
            readable = False
            yield key, name, "must be a file that can be read"
    if not readable:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # without a password function OpenSSL would ask for one on the terminal
        context.load_cert_chain(tls.cert, tls.key, password=lambda: "")
    except (ssl.SSLError, OSError):
        expected = "must be PEM files that belong together, the key without a password"
        yield "tls", f"{tls.cert}, {tls.key}", expected


def _refusal(problems: Sequence[Problem]) -> ConfigError:
    lines = [str(problem) for problem in sorted(problems, key=lambda problem: problem.line)]
    count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return ConfigError("\n".join([*lines, f"{count}; nothing was loaded"]))


# ----------------------------------------------------------------- what parts mean to one another


def _conflicts(tree: Any) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong between parts that are right for themselves; the others are passed over."""
    keys = tree if isinstance(tree, dict) else {}
    listen = _or_none(addresses.listen_address, keys.get("listen"))
    if listen and not addresses.is_loopback(listen.host) and keys.get("auth") is None:
        yield ("listen",), _AUTH_WANTED
    pools = keys.get("pools")
    pool_of_model: dict[str, str] = {}
    for name, pool in pools.items() if isinstance(pools, dict) else ():
        if not isinstance(pool, dict):
            continue
        yield from _repeated_workers(("pools", name, "workers"), pool.get("workers"))
        model = pool.get("model")
        if not isinstance(model, str):
            continue
        if pool_of_model.setdefault(model, name) != name:
            other = pool_of_model[model]
            yield (
                ("pools", name, "model"),
                f"is the model of pool {other} too; put their workers into one pool",
            )


def _repeated_workers(path: KeyPath, workers: Any) -> Iterator[tuple[KeyPath, str]]:
    index_of_url: dict[str, int] = {}
    for index, worker in enumerate(workers if isinstance(workers, list) else ()):
        in_mapping = isinstance(worker, dict)
        url = _or_none(addresses.worker_url, worker.get("url") if in_mapping else worker)
        if url is not None and index_of_url.setdefault(url, index) != index:
            place = (*path, index, "url") if in_mapping else (*path, index)
            yield (
                place,
                f"is the same worker as no. {index_of_url[url] + 1} of its pool; name it once",
            )


def _or_none(read: Callable[[Any], Out], value: Any) -> Out | None:
    try:
        return read(value)
    except ValueError:
        return None


# --------------------------------------------------------------------------------- command line


def _refuse_arguments(tree: dict[str, Any], faults: Sequence[tuple[KeyPath, str]]) -> None:
    problems = [
        Problem("command line", 0, *_argument(tree, path), expected) for path, expected in faults
    ]
    if problems:
        raise _refusal(problems)


def _bad_arguments(tree: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    arguments: list[tuple[KeyPath, Callable[[Any], object], str]] = [
        (("listen",), addresses.listen_address, tree["listen"]),
        (("data",), addresses.file_path, tree["data"]),
    ]
    workers = tree["pools"].get("default", {}).get("workers", [])
    for index, url in enumerate(workers):
        arguments.append((("pools", "default", "workers", index), addresses.worker_url, url))
    for path, read, text in arguments:
        try:
            read(text)
        except ValueError as error:
            yield path, str(error)


def _argument(tree: dict[str, Any], path: KeyPath) -> tuple[str, str]:
    """What a problem says of an argument: its name on the command line, and its value."""
    match path:
        case ("pools", _, "workers", int(index)):
            return f"URL {index + 1}", presentable(tree["pools"]["default"]["workers"][index])
        case ("pools",):
            return "URL", ""
        case _:
            return f"--{path[0]}", presentable(str(tree[str(path[0])]))


# -------------------------------------------------------------------------------------- rendering

_PLAIN = re.compile(r"(?:[A-Za-z]|\.?/|(?:[0-9]+\.){3}[0-9]+:)[A-Za-z0-9./_:-]*(?<!:)")
# Words that some reader of YAML takes for something else.
_TAKEN = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n", "none"})


def _worker_lines(worker: WorkerSettings, variable_of_key: dict[str, str]) -> list[str]:
    more = []
    if worker.upstream_model is not None:
        more.append(f"        upstream_model: {_quoted(worker.upstream_model)}")
    if worker.api_key is not None:
        number = len(variable_of_key) + 1
        variable = variable_of_key.setdefault(worker.api_key, f"WORKER_KEY_{number}")
        more.append(f'        api_key: "${{{variable}}}"')
    if worker.engine != "auto":
        more.append(f"        engine: {worker.engine}")
    url = _quoted(worker.url)
    return [f"      - url: {url}", *more] if more else [f"      - {url}"]


def _section_lines(name: str, section: Timeouts | Limits | Log) -> list[str]:
    lines = []
    for field in fields(section):
        value = getattr(section, field.name)
        if value == field.default:
            continue
        if field.name.endswith("_s"):
            lines.append(f"  {field.name.removesuffix('_s')}: {duration_text(value)}")
        elif field.name.endswith("_bytes"):
            lines.append(f"  {field.name.removesuffix('_bytes')}: {size_text(value)}")
        else:
            lines.append(f"  {field.name}: {str(value).lower()}")
    return [f"{name}:", *lines] if lines else []


def _quoted(text: str) -> str:
    """`text` as a YAML scalar that is read as exactly this text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _TAKEN:
        return text
    escaped = "".join(_escaped(char) for char in text.replace("${", "$${"))
    return f'"{escaped}"'


def _escaped(char: str) -> str:
    if char in {'"', "\\"}:
        return f"\\{char}"
    return char if char.isascii() and char.isprintable() else f"\\U{ord(char):08x}"
