"""The text of a recipe as values with lines: TOML or YAML, one shape. What the values mean is reading.py.

How it fails: BadRecipe with the line, for anything that is not a readable text of that form.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import PurePath
from typing import Any

import msgspec

from .faults import ENDLESS_NUMBER, BadRecipe, Fault, Path
from .toml_lines import toml_lines
from .yaml_tree import NotPlain, read_yaml

MAX_BYTES = 256 * 1024  # a recipe is written by hand
_LARGEST = 10**18  # numbers beyond cannot even be shown; no option takes one
# A dotted key without end, for which the standard reader takes quadratic time.
_ENDLESS_KEY = re.compile(
    r"""(?<![\w."'-])(?:(?:[\w-]{1,100}|"[^"\n]{0,100}"|'[^'\n]{0,100}')[ \t]{0,5}\.[ \t]{0,5}){60}"""
)
_DIGIT_RUN = re.compile(r"[0-9_]+")
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a recipe file. `lines` has the line of every key that stands in the text."""

    file: str  # as messages call it
    text: str
    values: dict[str, Any]
    lines: dict[Path, int]

    def line_of(self, path: Path) -> int | None:
        """The line of a value, or of the nearest thing around it that has one."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None


def tree_of(content: bytes, file: str) -> Tree:
    """Read a recipe's text. `file` decides between TOML and YAML by its ending. Raises BadRecipe."""
    text = _decoded(content, file)
    if PurePath(file).suffix.lower() == ".toml":
        values, lines = _toml(text, file)
    else:
        try:
            values, lines = read_yaml(text)
        except NotPlain as error:
            raise BadRecipe(file, [error.fault]) from error
    if not isinstance(values, dict):
        raise BadRecipe(file, [Fault(1, "A recipe is a table of keys (name, start, pages ...), and this is none.")])
    if not values:
        raise BadRecipe(file, [Fault(None, "The recipe is empty. It needs `start` and at least one page kind.")])
    tree = Tree(file=file, text=text, values=values, lines=lines)
    _refuse_endless_numbers(tree)
    return tree


def _decoded(content: bytes, file: str) -> str:
    if len(content) > MAX_BYTES:
        size = f"{len(content) / 1024:,.0f} KB"
        raise BadRecipe(file, [Fault(None, f"It has {size}; a recipe may have {MAX_BYTES // 1024} KB at most.")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadRecipe(file, [Fault(line, "The text is not UTF-8 here. Save the file as UTF-8.")]) from error


def _toml(text: str, file: str) -> tuple[dict[str, Any], dict[Path, int]]:
    endless = _ENDLESS_KEY.search(text)
    if endless is not None:
        line = text.count("\n", 0, endless.start()) + 1
        raise BadRecipe(file, [Fault(line, "A key has more than 60 parts.")])
    try:
        return tomllib.loads(text), toml_lines(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = _TOML_PLACE.search(message)
        line = text.rstrip().count("\n") + 1
        if place is not None:
            line = int(place[1]) if place[1] else line
            message = message[: place.start()]
        raise BadRecipe(file, [Fault(line, f"This is no TOML: {message}.")]) from error
    except RecursionError as error:
        raise BadRecipe(file, [Fault(None, "It is nested too deeply.")]) from error
    except ValueError as error:  # Python reads no number of more than some thousand digits
        longest = max(_DIGIT_RUN.finditer(text), key=lambda run: run.end() - run.start(), default=None)
        at = longest.start() if longest is not None else 0
        raise BadRecipe(file, [Fault(text.count("\n", 0, at) + 1, ENDLESS_NUMBER)]) from error


def _refuse_endless_numbers(tree: Tree) -> None:
    rest: list[tuple[Path, Any]] = [((), tree.values)]
    while rest:
        path, value = rest.pop()
        if isinstance(value, dict):
            rest += [((*path, name), entry) for name, entry in value.items()]
        elif isinstance(value, list):
            rest += [((*path, index), entry) for index, entry in enumerate(value)]
        elif isinstance(value, int) and abs(value) >= _LARGEST:
            raise BadRecipe(tree.file, [Fault(tree.line_of(path), ENDLESS_NUMBER)])
