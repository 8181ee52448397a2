"""Parses the text of a recipe, TOML or YAML, to values with lines. reader.py interprets the values.

The standard TOML parser gives no lines, so a second pass over the tokens of the text, which is valid by then, collects
them. YAML must be plain: no tags, no repeated keys, limited aliases. Its values are built here from the parsed nodes,
never by YAML's own constructors, so a file cannot create objects.

How it fails: BadRecipe with the line for invalid text; MissingExtra if no YAML parser is installed.
"""

from __future__ import annotations

import json
import re
import tomllib
from importlib import import_module
from pathlib import PurePath
from typing import Any

from ..errors import MissingExtra
from .table import ENDLESS_NUMBER, BadRecipe, Path, RecipeTree

MAX_BYTES = 256 * 1024  # a recipe is written by hand
_LARGEST = 10**18  # larger numbers cannot even be printed; no option takes one
# A very long dotted key, for which the standard parser takes quadratic time.
_ENDLESS_KEY = re.compile(
    r"""(?<![\w."'-])(?:(?:[\w-]{1,100}|"[^"\n]{0,100}"|'[^'\n]{0,100}')[ \t]{0,5}\.[ \t]{0,5}){60}"""
)
_DIGIT_RUN = re.compile(r"[0-9_]+")
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def tree_of(content: bytes, file: str) -> RecipeTree:
    """Parse a recipe's text. The suffix of `file` decides between TOML and YAML. Raises BadRecipe."""
    text = _decoded(content, file)
    if PurePath(file).suffix.lower() == ".toml":
        values, lines = _toml(text, file)
    else:
        try:
            values, lines = read_yaml(text)
        except NotPlain as error:
            raise BadRecipe.single(file, error.line, str(error)) from error
    if not isinstance(values, dict):
        raise BadRecipe.single(file, 1, "A recipe must be a table of keys (name, start, pages ...).")
    if not values:
        raise BadRecipe.single(file, None, "The recipe is empty. It needs `start` and at least one page kind.")
    tree = RecipeTree(file=file, text=text, values=values, lines=lines)
    _refuse_endless_numbers(tree)
    return tree


def _decoded(content: bytes, file: str) -> str:
    if len(content) > MAX_BYTES:
        size = f"{len(content) / 1024:,.0f} KB"
        raise BadRecipe.single(file, None, f"It has {size}; a recipe may have {MAX_BYTES // 1024} KB at most.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadRecipe.single(file, line, "The text is not UTF-8 here. Save the file as UTF-8.") from error


def _toml(text: str, file: str) -> tuple[dict[str, Any], dict[Path, int]]:
    endless = _ENDLESS_KEY.search(text)
    if endless is not None:
        line = text.count("\n", 0, endless.start()) + 1
        raise BadRecipe.single(file, line, "A key has more than 60 parts.")
    try:
        return tomllib.loads(text), toml_lines(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = _TOML_PLACE.search(message)
        line = text.rstrip().count("\n") + 1
        if place is not None:
            line = int(place[1]) if place[1] else line
            message = message[: place.start()]
        raise BadRecipe.single(file, line, f"This is not valid TOML: {message}.") from error
    except RecursionError as error:
        raise BadRecipe.single(file, None, "It is nested too deeply.") from error
    except ValueError as error:  # Python refuses integers of more than a few thousand digits
        longest = max(_DIGIT_RUN.finditer(text), key=lambda run: run.end() - run.start(), default=None)
        at = longest.start() if longest is not None else 0
        raise BadRecipe.single(file, text.count("\n", 0, at) + 1, ENDLESS_NUMBER) from error


def _refuse_endless_numbers(tree: RecipeTree) -> None:
    rest: list[tuple[Path, Any]] = [((), tree.values)]
    while rest:
        path, value = rest.pop()
        if isinstance(value, dict):
            rest += [((*path, name), entry) for name, entry in value.items()]
        elif isinstance(value, list):
            rest += [((*path, index), entry) for index, entry in enumerate(value)]
        elif isinstance(value, int) and abs(value) >= _LARGEST:
            raise BadRecipe.single(tree.file, tree.line_of(path), ENDLESS_NUMBER)


_TOKEN = re.compile(
    r"""(?P<text>\"{3}(?:[^"\\]|\\.|"(?!""))*"{3,5}|'{3}(?:[^']|'(?!''))*'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')
      | (?P<mark>[][{},=\n]) | (?P<word>[^][{},=.\s"'\#]+) | \#[^\n]*""",
    re.DOTALL | re.VERBOSE,
)


def toml_lines(text: str) -> dict[Path, int]:
    """The line of every table, key and list entry of a text that is valid TOML."""
    return _TomlLines(text).lines


class _TomlLines:
    """Walks over the tokens of a text. Numbers and the like need no care: in a value every word is skipped."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._table: Path = ()
        self._tables: dict[Path, int] = {}  # arrays of tables: how many entries were opened
        self._open: list[tuple[Path, list[int] | None]] = []  # lists, with the current entry, and inline tables (None)
        self._key: list[str] = []
        self._value: Path | None = None  # where the value stands that is being read; None: a key is
        self._header = ""
        line = counted = 0
        for token in _TOKEN.finditer(text):
            line, counted = line + text.count("\n", counted, token.start()), token.start()
            mark, word = token["mark"] or "", token["word"] or token["text"] or ""
            if mark == "\n":
                if not self._open:
                    self._value, self._key = None, []
            elif self._value is not None:
                self._in_value(mark, word, line + 1)
            elif mark or word:
                self._in_key(mark, word, line + 1)

    def _in_key(self, mark: str, word: str, line: int) -> None:
        if word:
            self._key.append(_key_part(word))
            if not self._header:
                self.lines.setdefault((*self._base(), *self._key), line)
        elif mark == "[":
            self._header += mark
        elif mark == "]":
            if self._key:
                self._table, self._key = self._opened_table(line), []
            self._header = self._header[1:]
        elif mark == "=":
            self._value, self._key = (*self._base(), *self._key), []
        elif mark == "}":
            self._value, _ = self._open.pop()

    def _in_value(self, mark: str, word: str, line: int) -> None:
        path, entry = self._open[-1] if self._open else ((), None)
        if entry is not None and (word or mark in ("[", "{")):
            self._value = (*path, entry[0])
            self.lines[self._value] = line
        assert self._value is not None
        if mark in ("[", "{"):
            self._open.append((self._value, [0] if mark == "[" else None))
            self._value = self._value if mark == "[" else None
        elif mark in ("]", "}"):
            self._value, _ = self._open.pop()
        elif mark == "," and entry is not None:
            entry[0] += 1
        elif mark == ",":
            self._value = None

    def _base(self) -> Path:
        return self._open[-1][0] if self._open else self._table

    def _opened_table(self, line: int) -> Path:
        path: Path = ()
        for position, step in enumerate(self._key):
            path = (*path, step)
            if position == len(self._key) - 1 and self._header == "[[":
                self.lines.setdefault(path, line)
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
            self.lines.setdefault(path, line)
        self.lines[path] = line
        return path


def _key_part(word: str) -> str:
    if word[0] == '"':
        try:
            return str(json.loads(word))
        except ValueError:  # an escape that only TOML has; the key then has no line number
            return word[1:-1]
    return word[1:-1] if word[0] == "'" else word


_CORE = "tag:yaml.org,2002:"
_MOST_NODES = 50_000  # with aliases expanded: a few lines can stand for billions
_DEEPEST = 30
_LONGEST_NUMBER = 1000  # characters; Python's limit is a few thousand


class NotPlain(Exception):
    """YAML that is refused, with the line and the reason."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line


def read_yaml(text: str) -> tuple[Any, dict[Path, int]]:
    """The values, and the line of each. Raises NotPlain, and MissingExtra if no YAML parser is installed."""
    try:
        yaml: Any = import_module("yaml")  # Any: the package has no types; imported here because most recipes are TOML
    except ImportError as error:
        raise MissingExtra(
            "Recipes in YAML need the package pyyaml: pip install pyyaml. TOML needs nothing."
        ) from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NotPlain(mark.line + 1 if mark else None, f"This is not valid YAML: {error.problem}.") from error
    except yaml.YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        raise NotPlain(line, f"This is not valid YAML: {' '.join(str(error).split())[:200]}.") from error
    except RecursionError as error:
        raise NotPlain(None, f"It is nested deeper than {_DEEPEST} levels.") from error
    if root is None:
        return {}, {}
    values = _YamlValues()
    return values.value(root, (), 0), values.lines


class _YamlValues:
    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self._nodes = 0

    def value(self, node: Any, path: Path, depth: int) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise NotPlain(line, f"It holds more than {_MOST_NODES:,} values, aliases counted as they unfold.")
        if depth > _DEEPEST:
            raise NotPlain(line, f"It is nested deeper than {_DEEPEST} levels.")
        kind = node.tag.removeprefix(_CORE)
        if kind == "map":
            return self._table(node, path, depth)
        if kind == "seq":
            return [self.value(entry, (*path, index), depth + 1) for index, entry in enumerate(node.value)]
        if kind == "int" and len(node.value) > _LONGEST_NUMBER:
            raise NotPlain(line, ENDLESS_NUMBER)
        try:
            return _scalar(kind, node.value)
        except (KeyError, ValueError):
            tag = node.tag.replace(_CORE, "!!")[:60]
            raise NotPlain(line, f"{tag} with {node.value!r:.60} is not plain YAML.") from None

    def _table(self, node: Any, path: Path, depth: int) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, entry in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key.value, str):
                raise NotPlain(line, "A key is a word or a text, not a list or a table.")
            name = key.value  # as written: `true` and `no` are names here
            if key.tag == f"{_CORE}merge":
                raise NotPlain(line, 'The key "<<" would mix tables, and recipes do not. Write the keys out.')
            if name in table:
                raise NotPlain(line, f'The key "{name[:60]}" is repeated here.')
            self.lines.setdefault((*path, name), line)
            table[name] = self.value(entry, (*path, name), depth + 1)
        return table


def _scalar(kind: str, text: str) -> Any:
    """The value of a YAML 1.1 scalar. Raises KeyError for any other kind, ValueError for a bad number."""
    if kind in ("str", "timestamp"):
        return text
    if kind == "bool":
        return text.lower() in ("true", "yes", "on")
    if kind == "null":
        return None
    if kind == "int":
        return int(text.replace("_", ""), 0 if text.lower().lstrip("+-").startswith("0x") else 10)
    if kind == "float":
        return float(text.replace("_", ""))
    raise KeyError(kind)
