"""Errors in schedules. The same message serves a user who wrote a table and one who typed flags."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ..errors import Misconfigured


class Key(msgspec.Struct, frozen=True):
    """A key of a schedule's table within a message; with a value, an example to write."""

    name: str
    value: str | int | bool | tuple[str, ...] | None = None


class BadSchedule(Misconfigured):
    """An invalid schedule. `where` names it, `key` is the wrong key ("" if it is not a single one), and `parts` form
    the message."""

    def __init__(self, where: str, key: str, *parts: str | Key) -> None:
        self.where = where
        self.key = key
        self.parts = parts
        super().__init__(self.in_words(in_toml))

    def in_words(self, spell: Callable[[Key], str]) -> str:
        """The message, with every key as `spell` writes it."""
        return f"{self.where}: " + "".join(part if isinstance(part, str) else spell(part) for part in self.parts)


def in_toml(key: Key) -> str:
    """`every`, `every = "6h"`, `shell = true`, `command = ["python", "list.py"]`"""
    match key.value:
        case None:
            return key.name
        case bool(value):
            text = "true" if value else "false"
        case int(value):
            text = str(value)
        case str(value):
            text = f'"{value}"'
        case words:
            text = "[" + ", ".join(f'"{word}"' for word in words) + "]"
    return f"{key.name} = {text}"


def key_list(names: Iterable[str], between: str = ", ") -> list[str | Key]:
    """Keys with `between` between them, as parts of a message."""
    parts: list[str | Key] = []
    for name in names:
        parts += [between, Key(name)] if parts else [Key(name)]
    return parts
