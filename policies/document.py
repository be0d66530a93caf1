"""YAML text to a tree of plain values that remembers where each stood and how it was written.

The environment is an argument and nothing is read or built but text, numbers, booleans, lists and
mappings: there is no constructor here that a tag could reach. Scalars are those of YAML 1.2
(`no`, `off` and `10:30` are text). What was filled in from the environment never shows in a
problem; what was written there does.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from yaml.composer import Composer
from yaml.error import MarkedYAMLError, YAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from policies.errors import Problem
from policies.wording import Path, dotted, presentable

Tree = dict[str, "Tree"] | list["Tree"] | str | int | float | bool | None

# Aliases of aliases can write a huge tree in a few lines.
_MOST_VALUES = 100_000

_REFERENCE = re.compile(
    r"\$\$\{"  # an escaped ${
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<or>:-(?P<default>[^}]*))?\}"
    r"|(?P<broken>\$\{)"
)
_HINTS = (
    ("found character '\\t'", "indent with spaces, not tabs"),
    (
        "mapping values are not allowed",
        'a value with ": " in it needs quotes, or a line is indented',
    ),
    ("found character '%'", "a value that begins with % needs quotes"),
    ("found character '@'", "a value that begins with @ needs quotes"),
    ("found character '`'", "a value that begins with ` needs quotes"),
    ("expected <block end>", "a line is indented unlike its neighbours, or a value needs quotes"),
    ("expected ',' or", "a bracket or brace is left open, or a value needs quotes"),
    ("expected the node content", "a bracket or brace is left open, or a value needs quotes"),
    ("but found another document", "take out the `---`"),
)


class _Composer(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML up to its nodes; nothing behind them."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)


_TAG = "tag:yaml.org,2002:"
for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
):
    _Composer.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), _first)


@dataclass(frozen=True, slots=True)
class Document:
    """A file as a tree, with the places of its parts.

    Attributes:
        file: its name, for problems.
        data: the tree; None if the text isn't YAML, or is empty.
        problems: what kept parts of it from being understood, in the order of the text.
    """

    file: str
    data: Tree
    problems: tuple[Problem, ...]
    _lines: Mapping[Path, int] = field(repr=False)
    _written: Mapping[Path, str] = field(repr=False)

    def line_of(self, path: Path) -> int:
        """The line, from 1, of the key or list item at `path`, or of its nearest known parent."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def written(self, path: Path) -> str:
        """The value at `path` as it stands in the file, fit for a problem; empty if there is none.

        `${NAME}` stays unfilled, the password and query of a URL are masked.
        """
        return self._written.get(path, "")

    def problem(self, path: Path, expected: str, *, found: str | None = None) -> Problem:
        """A problem at `path`; `found` is what is written there unless given."""
        shown = self.written(path) if found is None else found
        return Problem(self.file, self.line_of(path), dotted(path), shown, expected)


def parse(text: str, *, file: str, env: Mapping[str, str]) -> Document:
    """The tree of `text`, with `${NAME}` and `${NAME:-default}` in its values filled in from `env`.

    As in a shell, the default also stands in for an empty variable; `$${` is a plain `${`. A value
    that was filled in is text, whatever it looks like. Raises nothing: what is wrong is in
    `problems`, and the tree then holds None in its place.
    """
    reading = _Reading(file, env)
    try:
        root = _Composer(text).get_single_node()
        data = None if root is None else reading.value((), root)
    except RecursionError:
        return _unreadable(file, 1, "is nested too deeply")
    except _TooLargeError:
        return _unreadable(file, 1, f"must hold at most {_MOST_VALUES} values, aliases followed")
    except YAMLError as error:
        return _unreadable(file, _line_of_error(error, text), _words(error))
    problems = sorted(reading.problems, key=lambda problem: problem.line)
    return Document(file, data, tuple(problems), reading.lines, reading.written)


class _TooLargeError(Exception):
    """The tree has more values than anybody writes."""


class _Reading:
    """One walk over the nodes."""

    def __init__(self, file: str, env: Mapping[str, str]) -> None:
        self.lines: dict[Path, int] = {}
        self.written: dict[Path, str] = {}
        self.problems: list[Problem] = []
        self._file = file
        self._env = env
        self._open: set[int] = set()  # nodes being walked: an alias may point at its own parent
        self._values = 0

    def value(self, path: Path, node: Node) -> Tree:
        """The value of `node`, which stands at `path`."""
        self._count()
        self.lines.setdefault(path, _line(node))
        if id(node) in self._open:
            self._wrong(path, node, "must not contain itself through an alias")
            return None
        self._open.add(id(node))
        try:
            return self._value(path, node)
        finally:
            self._open.discard(id(node))

    def _value(self, path: Path, node: Node) -> Tree:
        match node:
            case MappingNode(tag="tag:yaml.org,2002:map"):
                self.written[path] = "{…}"
                return self._mapping(path, node)
            case SequenceNode(tag="tag:yaml.org,2002:seq"):
                self.written[path] = "[…]"
                return [self.value((*path, i), item) for i, item in enumerate(node.value)]
            case ScalarNode():
                self.written[path] = presentable(node.value)
                return self._scalar(path, node)
            case _:
                self._wrong(path, node, "must have no tag; write the value alone")
                return None

    def _mapping(self, path: Path, node: MappingNode) -> Tree:
        tree: dict[str, Tree] = {}
        first_line: dict[str, int] = {}
        for key_node, value_node, is_own in self._entries(path, node):
            if not isinstance(key_node, ScalarNode):
                self._tell(path, _line(key_node), "a key must be text")
                continue
            key, line = key_node.value, _line(key_node)
            if key in first_line and is_own:
                expected = f"is given twice; line {first_line[key]} has it already"
                self._tell((*path, key), line, expected)
            elif key not in tree:
                self.lines[*path, key] = line
                tree[key] = self.value((*path, key), value_node)
            if is_own:
                first_line.setdefault(key, line)
        return tree

    def _entries(self, path: Path, node: MappingNode) -> Iterator[tuple[Node, Node, bool]]:
        """The mapping's own entries, then those it merges in, which yield to all before them."""
        merged: list[Node] = []
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                merged += value.value if isinstance(value, SequenceNode) else [value]
            else:
                yield key, value, True
        for source in merged:
            self._count()
            if not isinstance(source, MappingNode) or id(source) in self._open:
                self._wrong((*path, "<<"), source, "must name another mapping, or a list of them")
                continue
            self._open.add(id(source))
            for key, value, _ in self._entries(path, source):
                yield key, value, False
            self._open.discard(id(source))

    def _scalar(self, path: Path, node: ScalarNode) -> Tree:
        match node.tag.removeprefix(_TAG):
            case "str" | "merge":
                return self._filled_in(path, node)
            case "null":
                return None
            case "bool":
                return str(node.value).lower() == "true"
            case "int" | "float" as kind:
                try:
                    return int(node.value) if kind == "int" else float(node.value)
                except ValueError:
                    self._wrong(path, node, "must be a number of fewer digits")
            case _:
                self._wrong(path, node, "must have no tag; write the value alone")
        return None

    def _filled_in(self, path: Path, node: ScalarNode) -> Tree:
        missing: list[str] = []

        def fill(match: re.Match[str]) -> str:
            name = match["name"]
            if match["broken"]:
                missing.append("${ must go on as ${NAME} or ${NAME:-default}; a plain ${ is $${")
            elif name is None:
                return "${"
            elif match["or"]:
                return self._env.get(name) or match["default"]
            elif name in self._env:
                return self._env[name]
            else:
                missing.append(f"set {name} in the environment, or write ${{{name}:-default}}")
            return ""

        text = _REFERENCE.sub(fill, node.value)
        for expected in missing:
            self._wrong(path, node, expected)
        return None if missing else text

    def _count(self) -> None:
        self._values += 1
        if self._values > _MOST_VALUES:
            raise _TooLargeError

    def _wrong(self, path: Path, node: Node, expected: str) -> None:
        line = self.lines.get(path, _line(node))
        self._tell(path, line, expected, found=self.written.get(path, ""))

    def _tell(self, path: Path, line: int, expected: str, *, found: str = "") -> None:
        self.problems.append(Problem(self._file, line, dotted(path), found, expected))


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _unreadable(file: str, line: int, expected: str) -> Document:
    return Document(file, None, (Problem(file, line, "", "", expected),), {}, {})


def _line_of_error(error: YAMLError, text: str) -> int:
    if isinstance(error, ReaderError):
        return text.count("\n", 0, error.position) + 1
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return 1 if mark is None else mark.line + 1


def _words(error: YAMLError) -> str:
    if isinstance(error, ReaderError):
        return "must be text; there is a control character here"
    problem = str(error.problem) if isinstance(error, MarkedYAMLError) else "it can't be read"
    hint = next((hint for start, hint in _HINTS if problem.startswith(start)), "")
    return f"isn't YAML: {problem}" + (f"; {hint}" if hint else "")
