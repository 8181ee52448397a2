"""Typed access to the values of a recipe. Faults are collected with their lines and reading continues, so that the
author sees all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .faults import Path, RecipeFault, spell, suggestion
from .text import RecipeTree


class RecipeTable:
    """One table of the recipe: its keys, its path, and the list that collects the faults."""

    def __init__(self, tree: RecipeTree, faults: list[RecipeFault], path: Path, values: dict[str, Any]) -> None:
        self._tree = tree
        self._faults = faults
        self.path = path
        self.values = values

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def fault(self, message: str, *steps: str | int) -> None:
        """Add a fault for the value at `steps` below this table."""
        self._faults.append(RecipeFault(self._tree.line_of((*self.path, *steps)), message))

    def spelled(self, *steps: str | int) -> str:
        return spell((*self.path, *steps)) or "The recipe"

    def wrong(self, expected: str, *steps: str | int) -> None:
        """Add a fault: the value at `steps` is not what was expected."""
        value: Any = self.values  # walks down
        for step in steps:
            value = value[step]
        self.fault(f"{self.spelled(*steps)} = {_shown(value)} should be {expected}.", *steps)

    def only(self, allowed: Iterable[str]) -> None:
        """Add a fault for every key that is not one of these."""
        names = list(allowed)
        for name in self.values:
            if name not in names:
                self.fault(f"{self.spelled(name)} is not a key of a recipe.{suggestion(name, names)}", name)

    def text(self, name: str, *, empty: bool = False) -> str | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or (not value.strip() and not empty):
            self.wrong("a text in quotes" if not isinstance(value, str) else "a text that is not empty", name)
            return None
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """One text or a list of them."""
        value = self.values.get(name)
        if value is None:
            return ()
        entries = [value] if isinstance(value, str) else value
        if not isinstance(entries, list) or not all(isinstance(entry, str) and entry for entry in entries):
            self.wrong("a text or a list of texts", name)
            return ()
        return tuple(entries)

    def number(self, name: str, least: int, most: int | None = None) -> int | None:
        value = self.values.get(name)
        if value is None:
            return None
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or value < least
            or (most is not None and value > most)
        ):
            bound = f"{least:,} or more" if most is None else f"between {least:,} and {most:,}"
            self.wrong(f"a whole number, {bound}", name)
            return None
        return value

    def flag(self, name: str) -> bool | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            self.wrong("true or false", name)
            return None
        return value

    def choice(self, name: str, allowed: Iterable[str], what: str) -> str | None:
        """One of the allowed words; `what` names their kind in the message: "type"."""
        names = list(allowed)
        value = self.text(name)
        if value is not None and value not in names:
            self.fault(f'{self.spelled(name)} = "{value[:60]}" is not a {what}.{suggestion(value, names)}', name)
            return None
        return value

    def inner(self, name: str) -> RecipeTable:
        """The table with that name, empty if the key is missing."""
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            self.wrong("a table", name)
            value = {}
        return RecipeTable(self._tree, self._faults, (*self.path, name), value)

    def entries(self, name: str) -> Iterator[RecipeTable | None]:
        """The tables in a list, or a single table in place of a list; None for any other entry."""
        value = self.values.get(name)
        if isinstance(value, dict):
            yield self.inner(name)
        elif isinstance(value, list):
            for index, entry in enumerate(value):
                yield self.at(name, index) if isinstance(entry, dict) else None
        elif value is not None:
            yield None

    def at(self, *steps: str | int) -> RecipeTable:
        """The table at `steps`, which must be a table."""
        value: Any = self.values  # walks down
        for step in steps:
            value = value[step]
        return RecipeTable(self._tree, self._faults, (*self.path, *steps), value)

    def seen_as(self, values: dict[str, Any]) -> RecipeTable:
        """The same place with other values, for a short form in its long version."""
        return RecipeTable(self._tree, self._faults, self.path, values)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value[:60]}"'
    return f"{value!r:.60}"
