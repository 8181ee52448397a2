"""Rules written into a recipe's file: the new source first, the old ones kept behind it, and a comment that says why.

Only the definition of the field is replaced; everything else in the file stays as its author wrote it. How it fails: a
file in which the field cannot be replaced (YAML, a table of its own) raises Misconfigured with the line to write.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import Misconfigured
from .model import SourceKind
from .rules import _EXTRA_SOURCE_KEYS, _READING_KEYS

_KEPT = ("currency", "zone")  # options that hold for old and new sources alike
_SOURCE = (*(kind.value for kind in SourceKind), *_EXTRA_SOURCE_KEYS)
_LONGEST = 60  # lines of one definition
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_value(value: Any) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{toml_key(name)} = {toml_value(one)}' for name, one in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        if ('"' in value or "\\" in value) and "'" not in value and value.isprintable():
            return f"'{value}'"
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def toml_key(name: str) -> str:
    """A key as TOML, in quotes if it has more than ASCII letters, digits, _ and -."""
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def definition(old: Any, sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The definition of a field with these sources before those of its `old` definition, as a recipe has it."""
    if isinstance(old, str):
        old = {"css": old}
    elif isinstance(old, list):
        old = {"sources": old}
    old = dict(old or {})
    own = {name: old.pop(name) for name in _READING_KEYS if name in old and name not in _KEPT}
    kept = [{"css": one} if isinstance(one, str) else dict(one) for one in old.pop("sources", ())]
    given = {name: old.pop(name) for name in _SOURCE if name in old}
    first = next(iter(given), "")
    if given and isinstance(given[first], list) and first != SourceKind.CONSTANT:
        kept += [{**given, first: one} for one in given[first]]
    elif given:
        kept.append(given)
    new = [dict(one) for one in sources]
    former = [table for table in ({**own, **one} for one in kept) if table not in new]
    return {**old, "sources": [*new, *former]}


def field_line(name: str, value: Mapping[str, Any]) -> str:
    """The definition as it stands in a recipe, each source on its own line."""
    rest = {key: one for key, one in value.items() if key != "sources"}
    listed = "".join(f"\n  {toml_value(one)}," for one in value["sources"])
    told = "".join(f"{toml_key(key)} = {toml_value(one)}, " for key, one in rest.items())
    return f"{toml_key(name)} = {{ {told}sources = [{listed}\n] }}"


def healed_text(
    text: str,
    file: str,
    kind: str,
    sources: Mapping[str, Sequence[Mapping[str, Any]]],
    why: str,
    *,
    unwritten: Any = None,
) -> str:
    """The text of a recipe with new sources for some fields of a page kind. `unwritten` is the definition of a field
    that the file does not write, as that of a ready parser. Raises Misconfigured."""
    if not file.endswith(".toml"):
        lines = [f"{name}: {json.dumps(list(one), ensure_ascii=False)}" for name, one in sources.items()]
        raise Misconfigured(f"{file} is no TOML. Put these sources first by hand:\n" + "\n".join(lines))
    fields = tomllib.loads(text).get("pages", {}).get(kind, {}).get("fields", {})
    lines = text.splitlines()
    for name, new in sources.items():
        value = definition(fields.get(name, unwritten), new)
        made = field_line(name, value)
        comment = f"# {name}: {why}"
        _replace(lines, file, kind, name, comment, made, there=name in fields)
    return "\n".join(lines) + "\n"


def healed_each(text: str, file: str, kind: str, css: str, why: str) -> str:
    """The text of a recipe with another rule for the blocks of a list. Raises Misconfigured."""
    made, lines = f"each = {toml_value(css)}", text.splitlines()
    section = _section(lines, f"pages.{kind}") if file.endswith(".toml") else None
    for at in range(section[0] + 1, section[1]) if section is not None else ():
        if re.match(r"\s*each\s*=", lines[at]):
            before = at - 1 if lines[at - 1].startswith("# each: ") else at
            lines[before : at + _size(lines[at:])] = [f"# each: {why}", made]
            return "\n".join(lines) + "\n"
    raise Misconfigured(f"{file}: `each` of pages.{kind} cannot be replaced where it stands. Write it by hand:\n{made}")


def _replace(lines: list[str], file: str, kind: str, name: str, comment: str, made: str, *, there: bool) -> None:
    inner = _section(lines, f"pages.{kind}.fields")
    outer = _section(lines, f"pages.{kind}")
    for section, prefix in ((inner, ""), (outer, "fields.")):
        if section is None:
            continue
        begin, end = section
        start = re.compile(rf"\s*{re.escape(prefix)}([\"']?){re.escape(name)}\1\s*=")
        for at in range(begin + 1, end):
            if start.match(lines[at]):
                size = _size(lines[at:end])
                before = at - 1 if at and lines[at - 1].startswith(f"# {name}: ") else at
                lines[before : at + size] = [comment, *f"{prefix}{made}".splitlines()]
                return
        if not there:
            lines[begin + 1 : begin + 1] = [comment, *f"{prefix}{made}".splitlines()]
            return
    raise Misconfigured(f"{file}: the field {name} cannot be replaced where it stands. Write it by hand:\n{made}")


def _section(lines: Sequence[str], name: str) -> tuple[int, int] | None:
    """The lines of a table: its head, and where the next one begins."""
    heads = [at for at, line in enumerate(lines) if re.match(r"\s*\[", line) and _ends_alone(lines, at)]
    for at, after in zip(heads, [*heads[1:], len(lines)], strict=True):
        if re.sub(r"\s", "", lines[at].partition("#")[0]) == f"[{name}]":
            return at, after
    return None


def _ends_alone(lines: Sequence[str], at: int) -> bool:
    """Is the line the head of a table, and no list that is continued?"""
    return re.match(r"\s*\[[\w.\"' -]+\]\s*(?:#.*)?$", lines[at]) is not None


def _size(lines: Sequence[str]) -> int:
    """The number of lines of the definition that begins the list."""
    for count in range(1, min(len(lines), _LONGEST) + 1):
        try:
            tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        return count
    return 1
