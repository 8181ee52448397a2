"""The small changes: in Python by its syntax tree, in Lua and SQL by their words. Pure; a change is a span of bytes.

A change is one that a person could have made by mistake and that the interpreter accepts: a bound that is off by one,
the other comparison, `and` for `or`, a statement or an argument left out. Text for people is left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "~=": "==", "<>": "="}
WORDS = {"in": "not in", "not in": "in", "is": "is not", "is not": "is", "and": "or", "or": "and"}
ARITHMETIC = {"+": "-", "-": "+", "*": "//", "/": "*", "//": "*", "|": "&", "&": "|", "<<": ">>", ">>": "<<"}
WITHOUT_EFFECT = ("strict", "name")  # arguments that check what always holds, or name a task for a debugger
TYPES_ONLY = "TYPE_CHECKING"  # what such a condition holds is never run
_SQL = re.compile(r"^\s*(SELECT|INSERT|UPDATE|DELETE|WITH|PRAGMA|CREATE)\b|\bWHERE\b", re.IGNORECASE)
_LUA_WORD = re.compile(
    r"--.*|\"[^\"\n]*\"|'[^'\n]*'"  # a comment, a text
    r"|(?P<op><=|>=|==|~=|<|>)|\b(?P<word>and|or)\b|(?<![\w.])(?P<number>\d+)(?![\w.])"
)
_SQL_WORD = re.compile(
    r"--.*|'[^'\n]*'"
    r"|(?P<op><=|>=|<>|<|>)|\b(?P<word>AND|OR)\b|\b(?P<sync>FULL)\b"
    r"|(?<![\w.$:?{])(?<!EXISTS \(SELECT )(?P<number>\d+)(?![\w.}])"  # EXISTS does not look at what is selected
)
_Spans = Iterator[tuple[int, int, str]]  # start, end, new text


@dataclass(frozen=True, slots=True)
class Change:
    """The bytes from `start` to `end` of a file become `new`; `owner` is the function that holds them, if one does."""

    line: int
    start: int
    end: int
    old: str
    new: str
    owner: str | None
    name: str | None  # what the statement assigns, where no function holds it

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def changes(path: PurePath, source: bytes) -> list[Change]:
    """Every change of a file, in the order of its text."""
    found = _of_lua(source) if path.suffix == ".lua" else _of_python(source)
    return sorted(set(found), key=lambda change: (change.start, change.end, change.new))


def _of_lua(source: bytes) -> Iterator[Change]:
    text = source.decode("latin-1")  # one character per byte
    for start, end, new in _of_words(text, _LUA_WORD):
        yield Change(text.count("\n", 0, start) + 1, start, end, text[start:end], new, None, None)


def _of_words(text: str, pattern: re.Pattern[str]) -> _Spans:
    for match in pattern.finditer(text):
        kind, word = match.lastgroup, match.group()
        if kind == "op":
            yield match.start(), match.end(), COMPARISONS[word]
        elif kind == "word":
            new = WORDS[word.lower()]
            yield match.start(), match.end(), new if word.islower() else new.upper()
        elif kind == "number":
            yield match.start(), match.end(), str(int(word) + 1)
        elif kind == "sync":
            yield match.start(), match.end(), "NORMAL"


class _Reader:
    """Positions of a syntax tree are lines and columns in bytes."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def start(self, node: ast.AST) -> int:
        return self._lines[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        return self._lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]


def _of_python(source: bytes) -> Iterator[Change]:
    reader = _Reader(source)

    def change(node: ast.AST, owner: str | None, name: str | None, start: int, end: int, new: str) -> Change:
        line = source.count(b"\n", 0, start) + 1
        return Change(line, start, end, source[start:end].decode(), new, owner, name)

    def walk(node: ast.AST, owner: str | None, name: str | None, scope: str) -> Iterator[Change]:
        if isinstance(node, ast.If) and TYPES_ONLY in ast.dump(node.test):
            return
        if isinstance(node, ast.keyword) and node.arg in WITHOUT_EFFECT:
            return
        for start, end, new in _of_node(node, reader, inside=owner is not None):
            yield change(node, owner, name, start, end, new)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{scope}{node.name}"
            for child in [*node.args.defaults, *(found for found in node.args.kw_defaults if found)]:
                yield from walk(child, owner or inner, name, scope)
            for child in _without_docstring(node):
                yield from walk(child, owner or inner, name, f"{inner}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            for child in _without_docstring(node):
                yield from walk(child, owner, name or node.name, f"{scope}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign) and owner is None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            named = target.id if isinstance(target, ast.Name) else name
            if node.value is not None and not (named or "").startswith("__"):
                yield from walk(node.value, owner, named, scope)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                yield from walk(node.value, owner, name, scope)
        else:
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, ast.JoinedStr):  # text for people, nearly always
                    yield from walk(child, owner, name, scope)

    for statement in _without_docstring(ast.parse(source)):
        yield from walk(statement, None, None, "")


def _without_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def _of_node(node: ast.AST, reader: _Reader, *, inside: bool) -> _Spans:
    match node:
        case ast.Compare():
            for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
                yield from _between(reader, left, right, {**COMPARISONS, **WORDS})
        case ast.BoolOp():
            yield from _between(reader, node.values[0], node.values[1], WORDS)
        case ast.BinOp() if not isinstance(node.op, ast.Mod):
            yield from _between(reader, node.left, node.right, ARITHMETIC)
        case ast.UnaryOp(op=ast.Not()):
            yield reader.start(node), reader.start(node) + len("not "), ""
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call() | ast.Await()) as found:
            yield reader.start(found.test), reader.start(found.test), "not "
        case ast.Constant(value=bool() as value):
            yield reader.start(node), reader.end(node), str(not value)
        case ast.Constant(value=int() as value):
            yield reader.start(node), reader.end(node), str(value + 1)
        case ast.Constant(value=float() as value):
            yield reader.start(node), reader.end(node), str(value * 2 or 1.0)
        case ast.Constant(value=str() as value) if _SQL.search(value):
            begin, end = reader.start(node), reader.end(node)
            text = reader.source[begin:end].decode("latin-1")
            yield from ((begin + start, begin + stop, new) for start, stop, new in _of_words(text, _SQL_WORD))
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() if inside:
            yield reader.start(node), reader.end(node), "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if inside:
            yield reader.start(node), reader.end(node), "pass"
        case ast.Continue() | ast.Break():
            yield reader.start(node), reader.end(node), "pass"
        case ast.Call() if inside:
            for keyword in node.keywords:
                yield from _without_keyword(node, keyword, reader)


def _between(reader: _Reader, left: ast.expr, right: ast.expr, others: dict[str, str]) -> _Spans:
    start, end = reader.end(left), reader.start(right)
    gap = reader.source[start:end].decode("latin-1")
    sign = re.sub(r"#.*", "", gap).strip(" \t\n()\\")
    if sign in others and (at := gap.find(sign)) >= 0:
        yield start + at, start + at + len(sign), others[sign]


def _without_keyword(node: ast.Call, keyword: ast.keyword, reader: _Reader) -> _Spans:
    """Leave an argument out, so that its default holds."""
    if keyword.arg is None or keyword.arg in WITHOUT_EFFECT:
        return
    start, end = reader.start(keyword), reader.end(keyword)
    rest = reader.source[end : reader.end(node)]
    comma = re.match(rb"\s*,", rest)
    yield start, end + (comma.end() if comma else 0), ""
