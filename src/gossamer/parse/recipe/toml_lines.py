"""Which line of a TOML text each value stands on. The standard reader does not tell.

The text has been read by `tomllib` before, so it is valid: this only walks over it and takes notes.
"""

from __future__ import annotations

import json
import re

from .faults import Path

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\r\n]*")
_STRINGS = {  # opening mark -> the whole string
    '"""': re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    "'''": re.compile(r"'''(?:[^']|'(?!''))*'{3,5}", re.DOTALL),
    '"': re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    "'": re.compile(r"'[^'\n]*'"),
}


def toml_lines(text: str) -> dict[Path, int]:
    """The line of every table, key and list entry."""
    return _Walk(text).lines


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counted = 0  # up to here line ends were counted
        self._line = 1
        self._lists: dict[Path, int] = {}  # arrays of tables: how many entries were opened
        self.lines: dict[Path, int] = {}
        table: Path = ()
        while self._skip(_BLANK) < len(text):
            if text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return self._at

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _header(self) -> Path:
        line = self._here()
        double = self._text.startswith("[[", self._at)
        self._at += 2 if double else 1
        key = self._key()
        self._at += 2 if double else 1
        path: Path = ()
        for position, step in enumerate(key):
            path = (*path, step)
            last = position == len(key) - 1
            if last and double:
                self.lines.setdefault(path, line)
                self._lists[path] = self._lists.get(path, 0) + 1
                path = (*path, self._lists[path] - 1)
            elif path in self._lists:
                path = (*path, self._lists[path] - 1)
            self.lines.setdefault(path, line)
        self.lines[path] = line
        return path

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._skip(_SPACE)
            parts.append(self._key_part())
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return parts
            self._at += 1

    def _key_part(self) -> str:
        start = self._at
        if self._text[start] == "'":
            self._skip(_STRINGS["'"])
            return self._text[start + 1 : self._at - 1]
        if self._text[start] == '"':
            self._skip(_STRINGS['"'])
            try:
                return str(json.loads(self._text[start : self._at]))
            except ValueError:  # an escape that only TOML knows; such a key is found nowhere, which costs a line number
                return self._text[start + 1 : self._at - 1]
        return self._text[start : self._skip(_BARE_KEY)]

    def _pair(self, table: Path) -> None:
        line = self._here()
        path = table
        for step in self._key():
            path = (*path, step)
            self.lines.setdefault(path, line)
        self._at += 1  # the "="
        self._skip(_SPACE)
        self._value(path)

    def _value(self, path: Path) -> None:
        text = self._text
        first = text[self._at]
        if first == "[":
            self._at += 1
            index = 0
            while text[self._skip(_BLANK)] != "]":
                self.lines[(*path, index)] = self._here()
                self._value((*path, index))
                index += 1
                if text[self._skip(_BLANK)] == ",":
                    self._at += 1
            self._at += 1
        elif first == "{":
            self._at += 1
            while text[self._skip(_BLANK)] != "}":
                self._pair(path)
                if text[self._skip(_BLANK)] == ",":
                    self._at += 1
            self._at += 1
        elif first in "\"'":
            mark = text[self._at : self._at + 3]
            self._skip(_STRINGS[mark if mark in _STRINGS else first])
        else:
            self._skip(_SCALAR)
