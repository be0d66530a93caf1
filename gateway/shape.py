"""The shape of gateway.yaml: its keys, what each takes, and sentences for what doesn't fit.

Pydantic stays in here, and its words too: a caller hands in a document and gets `Settings` or
problems. Only the functions that read a file import this module, and never at start: with pydantic
and YAML it costs more than the rest of a small gateway's start.
"""

import re
from typing import Annotated, Any, ClassVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from gateway import addresses, scalars
from gateway.settings import (
    DATA,
    Engine,
    Limits,
    Listen,
    Log,
    PoolSettings,
    Settings,
    Timeouts,
    Tls,
    WorkerSettings,
)
from policies.document import Document, Tree
from policies.errors import Problem
from policies.units import duration, duration_text, size, size_text
from policies.wording import Path, did_you_mean

_VARIABLE = re.compile(r"\$\{\w+\}")
_TIMES = Timeouts()
_SIZES = Limits()


def _or_variable(schema: dict[str, Any]) -> WithJsonSchema:
    """`schema`, or text with a `${NAME}` in it."""
    return WithJsonSchema({"anyOf": [schema, {"type": "string", "pattern": r"\$\{"}]})


_TEXT = {"type": "string", "minLength": 1}
_URL = {"type": "string", "pattern": r"^https?://|\$\{"}
_DURATION = {"anyOf": [{"type": "string", "pattern": "^([0-9.]+(us|ms|s|m|h|d)|0)$"}, {"const": 0}]}
_SIZE = {"anyOf": [{"type": "string", "pattern": "^[0-9.]+([KMGT]i?)?B?$"}, {"type": "integer"}]}
_COUNT = {"type": "integer", "minimum": 1}

_Text = Annotated[str, PlainValidator(scalars.text), WithJsonSchema(_TEXT)]
_Secret = Annotated[str, PlainValidator(scalars.secret), WithJsonSchema(_TEXT)]
_File = Annotated[str, PlainValidator(addresses.file_path), WithJsonSchema(_TEXT)]
_PoolName = Annotated[str, PlainValidator(scalars.name)]
_WorkerUrl = Annotated[str, PlainValidator(addresses.worker_url), WithJsonSchema(_URL)]
_ListenAddress = Annotated[
    Listen, PlainValidator(addresses.listen_address), _or_variable({"type": ["string", "integer"]})
]
_Flag = Annotated[bool, PlainValidator(scalars.flag), _or_variable({"type": "boolean"})]
_Count = Annotated[int, PlainValidator(scalars.count), _or_variable(_COUNT)]
_Bytes = Annotated[int, PlainValidator(scalars.some(size)), _or_variable(_SIZE)]
_Duration = Annotated[float, PlainValidator(duration), _or_variable(_DURATION)]
_SomeDuration = Annotated[float, PlainValidator(scalars.some(duration)), _or_variable(_DURATION)]
_ENGINES = get_args(Engine)
_Engine = Annotated[
    Engine, PlainValidator(scalars.choice(_ENGINES)), _or_variable({"enum": list(_ENGINES)})
]
_Auth = Annotated[str, PlainValidator(scalars.choice(["none"])), _or_variable({"const": "none"})]


def _key(
    default: Any, description: str, *, shown: str | None = None, alias: str | None = None
) -> Any:
    """A key that may be left out; `shown` is its default in the units of the file."""
    extra: dict[str, Any] | None = None if shown is None else {"default": shown}
    return Field(default, alias=alias, description=description, json_schema_extra=extra)


def _section(shape: type["_Shape"], description: str) -> Any:
    return Field(default_factory=shape, description=description)


def _time(alias: str, description: str) -> Any:
    default = getattr(_TIMES, f"{alias}_s")
    return _key(default, description, shown=duration_text(default), alias=alias)


def _bytes(alias: str, description: str) -> Any:
    default = getattr(_SIZES, f"{alias}_bytes")
    return _key(default, description, shown=size_text(default), alias=alias)


class _Shape(BaseModel):
    """A mapping of known keys. A key without a value counts as left out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)
    takes: ClassVar[str]  # what would be right, if it isn't a mapping

    @classmethod
    def keys(cls) -> dict[str, FieldInfo]:
        """Its keys as they are written."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}

    @model_validator(mode="before")
    @classmethod
    def _leave_out_empty(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = cls.keys()
        return {key: value for key, value in data.items() if value is not None or key not in known}


class WorkerShape(_Shape):
    """One model server: a URL, or a mapping."""

    takes = "must be a URL, or a mapping with a url"

    url: _WorkerUrl = Field(description="where it is; /v1 at the end may be left out")
    upstream_model: _Text | None = _key(
        None, "the worker's own name for the model; left out: taken from its /v1/models"
    )
    api_key: _Secret | None = _key(None, 'its bearer token, as in "${WORKER_KEY}"')
    engine: _Engine = _key("auto", "what kind of server it is; auto: found out by asking it")

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, data: Any) -> Any:
        return {"url": data} if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        mapping = handler(core_schema)
        mapping.pop("title")
        return {"anyOf": [_URL, mapping]}


class PoolShape(_Shape):
    """Workers that serve the same model."""

    takes = "must be a mapping with workers"

    model: _Text | None = _key(
        None, "the name clients ask for; left out: the names its workers report"
    )
    workers: list[WorkerShape] = Field(min_length=1, description="the servers, one or more")


class TlsShape(_Shape):
    """The certificate clients see."""

    takes = "must be a mapping with cert and key"

    cert: _File = Field(description="path of a PEM file: the certificate and its chain")
    key: _File = Field(description="path of a PEM file: the private key, without a password")


class TimeoutsShape(_Shape):
    """How long each wait may take."""

    takes = "must be a mapping such as {connect: 5s, total: 1h}"

    connect_s: _SomeDuration = _time("connect", "for a connection to a worker")
    first_byte_s: _Duration = _time(
        "first_byte", "from sending a request to the answer's first byte"
    )
    between_bytes_s: _Duration = _time("between_bytes", "between two reads of one answer")
    total_s: _Duration = _time("total", "from sending a request to the answer's last byte")
    worker_idle_s: _Duration = _time(
        "worker_idle", "an unused connection to a worker is kept; 0 closes it after each answer"
    )
    request_head_s: _Duration = _time("request_head", "for the head of a client's request")
    request_body_s: _Duration = _time("request_body", "for the body of a client's request")
    client_idle_s: _Duration = _time("client_idle", "an unused connection of a client is kept")
    drain_delay_s: _Duration = _time(
        "drain_delay", "at shutdown: not ready, but still accepting; 0: no delay"
    )
    drain_timeout_s: _Duration = _time(
        "drain_timeout", "at shutdown, then: for running answers to finish; 0 cuts them at once"
    )


class LimitsShape(_Shape):
    """How much is held at once."""

    takes = "must be a mapping such as {body: 32MB, connections: 16384}"

    body_bytes: _Bytes = _bytes("body", "of one request's body, unpacked")
    body_memory_bytes: _Bytes = _bytes("body_memory", "of all bodies held at a moment")
    connections: _Count = _key(_SIZES.connections, "of clients")

    @model_validator(mode="after")
    def _one_body_fits(self) -> "LimitsShape":
        if self.body_memory_bytes < self.body_bytes:
            raise ValueError("must be at least body, or the largest body would never fit")
        return self


class LogShape(_Shape):
    """What is written to the log."""

    takes = "must be a mapping such as {requests: true}"

    requests: _Flag = _key(Log().requests, "a line for every request that has ended")


class SettingsShape(_Shape):
    """All of gateway.yaml."""

    takes = "must be a mapping of keys, with pools among them"

    listen: _ListenAddress = Field(
        default_factory=Listen,
        description="HOST:PORT; :PORT is every interface, a port alone is loopback",
        json_schema_extra={"default": str(Listen())},
    )
    data: _File = _key(DATA, "the folder for files of the gateway's own")
    auth: _Auth | None = _key(
        None, "none: whoever can connect may ask; has to be said if listen is beyond loopback"
    )
    tls: TlsShape | None = _key(None, "serve HTTPS with this certificate; left out: plain HTTP")
    pools: dict[_PoolName, PoolShape] = Field(
        min_length=1, description="the pools of workers by name, one or more"
    )
    timeouts: TimeoutsShape = _section(TimeoutsShape, "how long each wait may take")
    limits: LimitsShape = _section(LimitsShape, "how much is held at once")
    log: LogShape = _section(LogShape, "what is written to the log")


def settings_of(document: Document) -> tuple[Settings | None, list[Problem]]:
    """The settings of `document`, or what in it doesn't fit; one of the two is empty."""
    tree = {} if document.data is None else document.data
    try:
        shape = SettingsShape.model_validate(tree)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    else:
        return _settings(shape), []
    return None, [_problem(document, detail) for detail in details]


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of gateway.yaml, for editors."""
    made = SettingsShape.model_json_schema(schema_generator=_Untitled)
    for part in (made, *made["$defs"].values()):
        part.pop("title", None)
    return {"$schema": _Untitled.schema_dialect, "title": "gateway.yaml of tiergate", **made}


class _Untitled(GenerateJsonSchema):
    """Without titles of fields, which repeat their keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  pydantic's signature
        return False


def _settings(shape: SettingsShape) -> Settings:
    return Settings(
        pools=tuple(
            PoolSettings(
                name=name,
                model=pool.model,
                workers=tuple(WorkerSettings(**worker.model_dump()) for worker in pool.workers),
            )
            for name, pool in shape.pools.items()
        ),
        listen=shape.listen,
        data=shape.data,
        auth="none" if shape.auth else None,
        tls=None if shape.tls is None else Tls(**shape.tls.model_dump()),
        timeouts=Timeouts(**shape.timeouts.model_dump()),
        limits=Limits(**shape.limits.model_dump()),
        log=Log(**shape.log.model_dump()),
    )


# ------------------------------------------------------------------------------------- sentences


def _problem(document: Document, detail: ErrorDetails) -> Problem:
    path, kind, found = detail["loc"], detail["type"], None
    expected = _sentence(path, detail)
    if path[-1:] == ("[key]",):  # pydantic's mark for a key that doesn't fit
        return document.problem(path[:-1], expected, found="")
    if isinstance(_at(document.data, path[:-1]), str):
        path = path[:-1]  # a worker that is written as its URL
    if path == ("limits",) and kind == "value_error":
        path = ("limits", "body_memory")
    if kind in {"extra_forbidden", "too_short"}:
        found = ""  # an unknown key may be a misspelt api_key
    elif path[-1:] == ("api_key",) and not _VARIABLE.fullmatch(document.written(path)):
        found = "(hidden)"
    return document.problem(path, expected, found=found)


def _sentence(path: Path, detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind in _LISTS:
        return _LISTS[kind]
    if kind not in _KEYS:
        return _shape_at(path).takes
    key, keys = str(path[-1]), _shape_at(path[:-1]).keys()
    if kind == "extra_forbidden":
        return _unknown(key, list(keys))
    return f"{_KEYS[kind]}: {keys[key].description}"


_LISTS = {
    "list_type": "must be a list, such as [http://10.0.0.5:8000]",
    "dict_type": "must be a mapping, such as {chat: {workers: [http://10.0.0.5:8000]}}",
}
_KEYS = {"missing": "is missing", "too_short": "must not be empty", "extra_forbidden": ""}


def _unknown(word: str, known: list[str]) -> str:
    return f"no such key; {did_you_mean(word, known) or 'there are ' + ', '.join(known)}"


def _shape_at(path: Path) -> type[_Shape]:
    match path:
        case ():
            return SettingsShape
        case ("pools", _):
            return PoolShape
        case ("pools", _, "workers", _):
            return WorkerShape
        case (key,):
            return _SECTIONS[str(key)]
        case _:
            raise AssertionError(path)


_SECTIONS: dict[str, type[_Shape]] = {
    "tls": TlsShape,
    "timeouts": TimeoutsShape,
    "limits": LimitsShape,
    "log": LogShape,
}


def _at(tree: Tree, path: Path) -> Tree:
    for step in path:
        if isinstance(tree, dict) and isinstance(step, str):
            tree = tree.get(step)
        elif isinstance(tree, list) and isinstance(step, int):
            tree = tree[step]
        else:
            return None
    return tree
