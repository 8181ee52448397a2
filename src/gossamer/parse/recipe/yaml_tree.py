"""YAML as plain values with the line of each. Only plain YAML: no tags, no repeated keys, aliases within bounds.

Values are made here from the parsed nodes, never by YAML's own constructors: nothing in a file can make an object.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...errors import MissingExtra
from .faults import ENDLESS_NUMBER, Fault, Path

_CORE = "tag:yaml.org,2002:"
_MOST_NODES = 50_000  # aliases counted as often as they are used: a few lines can stand for billions
_DEEPEST = 30
_LONGEST_NUMBER = 1000  # characters; Python reads some thousand


class NotPlain(Exception):
    """YAML that is refused, with the fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def read_yaml(text: str) -> tuple[Any, dict[Path, int]]:
    """The values, and the line of each. Raises NotPlain, and MissingExtra where there is no YAML reader."""
    try:
        yaml: Any = import_module("yaml")  # Any: it has no types; imported here, as most recipes are TOML
    except ImportError as error:
        raise MissingExtra(
            "Recipes in YAML need the package pyyaml: pip install pyyaml. TOML needs nothing."
        ) from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NotPlain(Fault(mark.line + 1 if mark else None, f"This is no YAML: {error.problem}.")) from error
    except yaml.YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        raise NotPlain(Fault(line, f"This is no YAML: {' '.join(str(error).split())[:200]}.")) from error
    except RecursionError as error:
        raise NotPlain(Fault(None, f"It is nested deeper than {_DEEPEST} levels.")) from error
    if root is None:
        return {}, {}
    making = _Making()
    return making.value(root, (), 0), making.lines


class _Making:
    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self._nodes = 0

    def value(self, node: Any, path: Path, depth: int) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise NotPlain(Fault(line, f"It holds more than {_MOST_NODES:,} values, aliases counted as they unfold."))
        if depth > _DEEPEST:
            raise NotPlain(Fault(line, f"It is nested deeper than {_DEEPEST} levels."))
        kind = node.tag.removeprefix(_CORE)
        if kind == "map":
            return self._table(node, path, depth)
        if kind == "seq":
            return [self.value(entry, (*path, index), depth + 1) for index, entry in enumerate(node.value)]
        if kind == "int" and len(node.value) > _LONGEST_NUMBER:
            raise NotPlain(Fault(line, ENDLESS_NUMBER))
        try:
            return _scalar(kind, node.value)
        except (KeyError, ValueError):
            raise NotPlain(
                Fault(line, f"{node.tag.replace(_CORE, '!!')[:60]} with {node.value!r:.60} is not plain YAML.")
            ) from None

    def _table(self, node: Any, path: Path, depth: int) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, entry in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key.value, str):
                raise NotPlain(Fault(line, "A key is a word or a text, not a list or a table."))
            name = key.value  # as written: `true` and `no` are names here
            if key.tag == f"{_CORE}merge":
                raise NotPlain(Fault(line, 'The key "<<" would mix tables, and recipes do not. Write the keys out.'))
            if name in table:
                raise NotPlain(Fault(line, f'The key "{name[:60]}" stands here for the second time.'))
            self.lines.setdefault((*path, name), line)
            table[name] = self.value(entry, (*path, name), depth + 1)
        return table


def _scalar(kind: str, text: str) -> Any:
    """A scalar of YAML 1.1 as it means itself. Raises KeyError for any other kind, ValueError for a bad number."""
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
