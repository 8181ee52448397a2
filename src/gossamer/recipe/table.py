"""Typed access to the values of a recipe, and its faults: the line, and one sentence that says what is allowed there.
Faults are collected and reading continues, so that the author sees all of them at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, get_args

import msgspec

from ..errors import Misconfigured

# Values of a recipe; a Meta says in words what is taken.
Text = Annotated[str, msgspec.Meta(pattern=r"\S", description="a text in quotes, and not empty")]
Texts = Annotated[
    tuple[Annotated[str, msgspec.Meta(min_length=1)], ...], msgspec.Meta(description="a text or a list of texts")
]
Flag = Annotated[bool, msgspec.Meta(description="true or false")]
Count = Annotated[int, msgspec.Meta(ge=1, description="a whole number, 1 or more")]
CountOrZero = Annotated[int, msgspec.Meta(ge=0, description="a whole number, 0 or more")]

Path = tuple[str | int, ...]  # the path of a value: ("pages", "listing", "follow", 0, "css")
_MOST_SHOWN = 40  # names listed in a message
ENDLESS_NUMBER = "A number has more than 18 digits. Write it as a text, in quotes."


class RecipeTree(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a recipe file. `lines` has the line of every key in the text."""

    file: str  # its name in messages
    text: str
    values: dict[str, Any]
    lines: dict[Path, int]

    def line_of(self, path: Path) -> int | None:
        """The line of a value, or of the nearest enclosing table or list that has one."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None


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
        self.fault(f"{self.spelled(*steps)} = {_excerpt(value)} should be {expected}.", *steps)

    def only(self, allowed: Iterable[str]) -> None:
        """Add a fault for every key that is not one of these."""
        names = list(allowed)
        for name in self.values:
            if name not in names:
                self.fault(f"{self.spelled(name)} is not a key of a recipe.{suggestion(name, names)}", name)

    def value(self, name: str, kind: Any) -> Any:
        """The value under a key, checked by msgspec: `kind` is a type whose Meta says in words what it takes. None if
        the key is missing or its value is a fault. A single text may stand for a list of one."""
        value = self.values.get(name)
        if value is None:
            return None
        try:
            return msgspec.convert([value] if isinstance(value, str) and _takes_list(kind) else value, kind)
        except msgspec.ValidationError:
            self.wrong(_expected(kind), name)
            return None

    def texts(self, name: str) -> tuple[str, ...]:
        """One text or a list of them."""
        return self.value(name, Texts) or ()

    def typed(self, struct: type[msgspec.Struct], *others: str) -> dict[str, Any]:
        """The values under the keys that are fields of the struct, without `others`, which are read by hand. Any other
        key is a fault."""
        self.only(struct.__struct_fields__)
        fields = [one for one in msgspec.structs.fields(struct) if one.name in self.values and one.name not in others]
        values = {one.name: self.value(one.name, one.type) for one in fields}
        return {name: value for name, value in values.items() if value is not None}

    def choice(self, name: str, allowed: Iterable[str], what: str) -> str | None:
        """One of the allowed words; `what` names their kind in the message: "type"."""
        names = list(allowed)
        value: str | None = self.value(name, Text)
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


def _expected(kind: Any) -> str:
    """What a type takes, in the words of its Meta; of `X | None` those of X."""
    for one in (kind, *get_args(kind)):
        for meta in getattr(one, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta) and meta.description:
                return meta.description
    raise TypeError(f"{kind} has no description")


def _takes_list(kind: Any) -> bool:
    return kind == Texts or Texts in get_args(kind)


def _excerpt(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value[:60]}"'
    return f"{value!r:.60}"


class RecipeFault(msgspec.Struct, frozen=True):
    """One fault. `line` counts from 1; None if the fault has no line."""

    line: int | None
    message: str


class BadRecipe(Misconfigured):
    """An invalid recipe, with all its `faults`; the message is the first one with its line."""

    def __init__(self, file: str, faults: Sequence[RecipeFault]) -> None:
        self.file = file
        self.faults = tuple(faults)
        rest = len(self.faults) - 1
        more = (
            f" (There {'is' if rest == 1 else 'are'} {rest} more; `gossamer check {file}` lists them.)" if rest else ""
        )
        super().__init__(f"{self.lines()[0]}{more}")

    @classmethod
    def single(cls, file: str, line: int | None, message: str) -> BadRecipe:
        """An error with a single fault, which stopped the reading."""
        return cls(file, [RecipeFault(line, message)])

    def lines(self) -> list[str]:
        """Every fault with its line, in order of appearance."""
        return [f"{located(self.file, fault.line)}: {fault.message}" for fault in self.faults]


def located(file: str, line: int | None) -> str:
    return f"{file}, line {line}" if line is not None else file


def spell(path: Path) -> str:
    """`pages.listing.follow[0].css`"""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def suggestion(word: str, allowed: Iterable[str]) -> str:
    """` Did you mean "money"? Allowed: ...`: the end of a message about an unknown word."""
    names = list(allowed)
    near = difflib.get_close_matches(word, names, n=1)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    listed = ", ".join(names[:_MOST_SHOWN])
    return f"{hint} Allowed: {listed}." if listed else hint
