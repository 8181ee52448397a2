"""Reading what a field says about its type: the type itself, its options, a default, and transforms."""

from __future__ import annotations

import re
from typing import Any

from . import transforms
from .dates import check_spelling, zone_of
from .faults import suggestion
from .model import FieldType, Reading, Transform
from .table import Table
from .values import Unreadable, named, taken_as_is, value_of
from .yes_no import fold

READING_KEYS = ("type", "of", "currency", "decimal", "zone", "format", "languages", "true", "false")
DECIMAL_SIGNS = (".", ",")
_TYPES = tuple(kind.value for kind in FieldType)
# Which types an option is for; elsewhere it would do nothing, and a person would wonder.
_OPTION_TYPES = {
    "currency": (FieldType.MONEY,),
    "decimal": (FieldType.INT, FieldType.DECIMAL, FieldType.FLOAT),
    "zone": (FieldType.DATE, FieldType.DAY),
    "format": (FieldType.DATE, FieldType.DAY),
    "languages": (FieldType.DATE, FieldType.DAY),
    "true": (FieldType.BOOL,),
    "false": (FieldType.BOOL,),
}


def read_reading(table: Table) -> Reading:
    """The type of a field and its options. After a type that is none, its options are not looked at."""
    given = table.choice("type", _TYPES, "type")
    if given is None and "type" in table:
        return Reading()
    kind = FieldType(given or "text")
    singles = [name for name in _TYPES if name != FieldType.LIST]
    of = table.choice("of", singles, "type of a list's entries")
    if of is not None and kind is not FieldType.LIST:
        table.fault(f'{table.spelled("of")} goes with type = "list".', "of")
    single = FieldType(of or "text") if kind is FieldType.LIST else kind
    for option, types in _OPTION_TYPES.items():
        if option in table and single not in types:
            table.fault(f"{table.spelled(option)} does nothing here; it is for {' and '.join(types)}.", option)
    zone = table.text("zone")
    if zone is not None:
        try:
            zone_of(zone)
        except ValueError as error:
            table.fault(f"{table.spelled('zone')}: {error}.", "zone")
            zone = None
    formats, languages = table.texts("format"), table.texts("languages")
    for option, spelled in (("format", (formats, ())), ("languages", ((), languages))):
        try:
            check_spelling(*spelled)
        except ValueError as error:
            table.fault(f"{table.spelled(option)}: {error}.", option)
    true, false = table.texts("true"), table.texts("false")
    for word in sorted({fold(word) for word in true} & {fold(word) for word in false}):
        table.fault(f'{table.spelled("false")}: "{word[:60]}" stands in `true` and in `false`; choose one.', "false")
    currency = table.text("currency")
    if currency is not None and not re.fullmatch(r"[A-Z]{3}", currency):
        table.wrong("a code of three letters like EUR", "currency")
    return Reading(
        type=kind,
        of=FieldType(of) if of is not None else None,
        currency=currency,
        decimal=table.choice("decimal", DECIMAL_SIGNS, "decimal sign") or ".",
        zone=zone,
        formats=formats,
        languages=languages,
        true=true,
        false=false,
    )


def read_default(table: Table, reading: Reading) -> Any:
    if "default" not in table:
        return None
    if table.values.get("required") is True:
        table.fault(f"{table.spelled()} is required and has a default; choose one.", "default")
        return None
    given = table.values["default"]
    many = reading.type is FieldType.LIST
    if many != isinstance(given, list):
        table.wrong("a list" if many else named(reading.single), "default")
        return None
    try:
        values = [_default(entry, reading) for entry in (given if many else [given])]
    except Unreadable:
        table.wrong(f"a list of {reading.single}" if many else named(reading.single), "default")
        return None
    return values if many else values[0]


def _default(given: Any, reading: Reading) -> Any:
    kind = reading.single
    if isinstance(given, bool) and kind is not FieldType.BOOL:
        raise Unreadable("which is true or false")
    if not isinstance(given, str | int | float) and not taken_as_is(given, kind):
        raise Unreadable("which is something else")
    return value_of(given, reading, None)


def read_transforms(table: Table) -> tuple[Transform, ...]:
    value = table.values.get("transforms")
    if value is None:
        return ()
    entries = value if isinstance(value, list) else [value]
    steps = [_read_transform(table, entry, index) for index, entry in enumerate(entries)]
    return tuple(step for step in steps if step is not None)


def _read_transform(table: Table, entry: Any, index: int) -> Transform | None:
    where: tuple[str | int, ...] = (
        ("transforms", index) if isinstance(table.values["transforms"], list) else ("transforms",)
    )
    name = entry if isinstance(entry, str) else next(iter(entry), "") if isinstance(entry, dict) else ""
    if name not in transforms.NAMES:
        shown = f'"{name[:60]}"' if name else f"{entry!r:.60}"
        table.fault(f"{table.spelled(*where)} = {shown} is no transform.{suggestion(name, transforms.NAMES)}", *where)
        return None
    if isinstance(entry, str):
        if name in transforms.PLAIN_NAMES:
            return Transform(name=name)
        table.fault(f"{table.spelled(*where)}: write it with its argument, like {_EXAMPLES[name]}.", *where)
        return None
    if name not in transforms.ARGUMENT_NAMES:
        table.fault(f'{table.spelled(*where)} takes no argument; write it like "{name}".', *where)
        return None
    argument = entry[name]
    extra = [key for key in entry if key != name and (name, key) != (transforms.REPLACE, "with")]
    if (
        extra
        or not _is_good(name, argument)
        or (name == transforms.REPLACE and not isinstance(entry.get("with", ""), str))
    ):
        table.fault(f"{table.spelled(*where)} should be written like {_EXAMPLES[name]}.", *where)
        return None
    if name == transforms.CUT:
        return Transform(name=name, number=argument)
    if name != transforms.REPLACE:
        return Transform(name=name, text=argument)
    try:
        pattern = re.compile(argument)
        pattern.sub(entry.get("with", ""), "")  # finds a group that does not exist
    except (re.error, IndexError, RecursionError, OverflowError) as error:
        table.fault(f"{table.spelled(*where)}: the regular expression or its `with` cannot be used ({error}).", *where)
        return None
    return Transform(name=name, pattern=pattern, text=entry.get("with", ""))


def _is_good(name: str, argument: Any) -> bool:
    if name == transforms.CUT:
        return isinstance(argument, int) and not isinstance(argument, bool) and argument >= 1
    if name == transforms.NUMBER:
        return argument in DECIMAL_SIGNS
    return isinstance(argument, str) and (argument != "" or name != transforms.SPLIT)


_EXAMPLES = {
    "strip": '{ strip = "€ " }',
    "split": '{ split = "," }',
    "join": '{ join = ", " }',
    "prefix": '{ prefix = "https://" }',
    "suffix": '{ suffix = " kg" }',
    "number": '"number" or { number = "," }',
    "replace": '{ replace = "[^0-9]+", with = "" }',
    "cut": "{ cut = 200 }",
}
