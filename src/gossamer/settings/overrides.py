"""Which settings an admin may override while workers run, and the settings with an override in force.

A list of its own: what stands in a shared state must not name commands, files, secrets or addresses. A key is that of
the setting: `domains.shop.example.rate`. One member of a list is named behind it: `proxies.city.skip.http://1.2.3.4:80`.
"""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

import msgspec

from ..errors import Misconfigured, UnknownSetting
from ..units import setting_text, visible
from .reader import NAMED_TABLES, check_settings, keys_of, value_of
from .tables import Settings

BY_HAND = "set by hand"  # how the origin of an overridden setting begins
SKIP = "skip"  # lists of what is not used; each member may be overridden by itself
PACE = ("rate", "burst", "concurrency", "rest")
OF_SITES = (*PACE, "route", "ladder", SKIP, "budget")
OF_ALERTS = ("enabled", "severity", "for", "threshold", "window", "minimum", "repeat", "keep_for")
PLAIN = (
    "politeness.rate", "politeness.burst", "politeness.concurrency", "router.ladder", "router.budget_job",
    "router.budget_day", "router.budget_domain", "log.level",
)  # fmt: skip
LEVEL_OF = "log.levels."  # before the name of a process, HOST/PID, or of a machine, HOST
FIELDS = {"domains": OF_SITES, "alerts": OF_ALERTS, "proxies": (SKIP,)}
LONGEST = 500  # characters of a key or a value


class Place(NamedTuple):
    """Where a setting stands: `domains`, `shop.example`, `rate`. `member` is one of a list."""

    family: str
    name: str
    field: str
    member: str = ""

    @property
    def known(self) -> str:
        """The key as the reader of settings knows it."""
        return f"{self.family}.<{NAMED_TABLES[self.family][0]}>.{self.field}" if self.name else self.field


def place_of(key: str) -> Place:
    """Raises UnknownSetting for a setting that is not among those that may be overridden."""
    if key in PLAIN:
        return Place("", "", key)
    if key.startswith(LEVEL_OF) and key != LEVEL_OF:
        return Place("", "", LEVEL_OF.removesuffix("."), key.removeprefix(LEVEL_OF))
    family, _, rest = key.partition(".")
    fields, (name, _, field) = FIELDS.get(family, ()), rest.rpartition(".")
    if name and field in fields and f".{SKIP}." not in rest:
        return Place(family, name, field)
    name, _, member = rest.partition(f".{SKIP}.")
    if name and member and SKIP in fields:
        return Place(family, name, SKIP, member)
    of_tables = (f"{one}.<{NAMED_TABLES[one][0]}>.{each}" for one, every in FIELDS.items() for each in every)
    words = [*PLAIN, f"{LEVEL_OF}<process>", *of_tables]
    near = difflib.get_close_matches(key, words, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"There is {', '.join(words)}."
    raise UnknownSetting(f"{visible(key)} cannot be set by hand while workers run. {hint}")


def overridden(settings: Settings, key: str, value: str, origin: str = BY_HAND) -> Settings:
    """The settings with this value of one of them. Raises UnknownSetting, Misconfigured."""
    place = place_of(key)
    if max(len(key), len(value)) > LONGEST:
        raise Misconfigured(f"A key and a value are at most {LONGEST} characters long.")
    if place.member and not place.name:
        new: Any = {**settings.log.levels, place.member: value}
    elif place.member:
        wanted = value_of("domains.<domain>.rest", value, key)  # yes or no
        listed = [one for one in _table(settings, place)[1] if one != place.member]
        new = (*listed, place.member) if wanted else tuple(listed)
    else:
        new = value_of(place.known, value, key)
    origins = {**settings.origins, key.removesuffix(f".{place.member}"): origin}
    if not place.name:
        table, _, field = place.field.partition(".")
        changed = msgspec.structs.replace(getattr(settings, table), **{field: new})
        found = msgspec.structs.replace(settings, **{table: changed}, origins=origins)
    else:
        struct, _ = _table(settings, place)
        field = next(field for field, own in keys_of(type(struct)) if own == place.field)
        named = {**getattr(settings, place.family), place.name: msgspec.structs.replace(struct, **{field: new})}
        found = msgspec.structs.replace(settings, **{place.family: named}, origins=origins)
    check_settings(found)
    return found


def text_at(settings: Settings, key: str) -> str:
    """The value of a setting that may be overridden, in the notation of gossamer.toml. Raises UnknownSetting."""
    place = place_of(key)
    if not place.name:
        table, _, field = place.field.partition(".")
        value = getattr(getattr(settings, table), field)
        return value.get(place.member, "") if place.member else _text(value)
    value = _table(settings, place)[1]
    if place.member:
        return "yes" if place.member in value else "no"
    return _text(value) if value is not None else ""


def _text(value: Any) -> str:  # Any: each setting has its own type
    return f"{value:g}" if isinstance(value, float) else setting_text(value)


def _table(settings: Settings, place: Place) -> tuple[msgspec.Struct, Any]:  # Any: the type depends on the setting
    """The table that holds the setting, and its value there."""
    kind = NAMED_TABLES[place.family][1]
    struct: msgspec.Struct
    if place.family == "domains":
        struct = settings.domain(place.name)
    else:
        found = getattr(settings, place.family).get(place.name)
        if found is None and place.family == "proxies":
            known = ", ".join(settings.proxies) or "none yet"
            raise Misconfigured(f"There is no proxy pool {visible(place.name)}; there is {known}.")
        struct = found or kind()
    field = next(field for field, own in keys_of(kind) if own == place.field)
    return struct, getattr(struct, field)
