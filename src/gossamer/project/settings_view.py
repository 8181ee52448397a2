"""The settings of a project, with the origin of each. Secrets are masked.

`settings_view` has the shape that `--json` prints.
"""

from __future__ import annotations

import difflib
from typing import Any

import msgspec

from ..backends.addresses import redacted
from ..errors import UnknownSetting
from ..settings import NAMED_TABLES, Settings, keys_of, known_keys
from ..units import HIDDEN, Rate, Size, discreet, many, setting_text

DEFAULT = "default"  # the origin of a setting that is not set


class SettingView(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a setting, masked if it may hold a secret, and its origin."""

    value: Any  # each setting has its own type; durations, rates and sizes are texts
    origin: str = msgspec.field(name="from")


class SettingLine(msgspec.Struct, frozen=True):
    """One setting with its value, masked, and its origin."""

    key: str
    value: Any  # each setting has its own type
    origin: str

    @property
    def text(self) -> str:
        """The value in the notation of gossamer.toml."""
        return setting_text(self.value)


def setting_lines(settings: Settings, key: str | None = None) -> list[SettingLine]:
    """Every setting, and every override for a domain; with a `key`, only that one or that group. Raises
    UnknownSetting."""
    lines = []
    for known in known_keys():
        if known.partition(".")[0] in NAMED_TABLES:
            continue
        value: Any = settings  # walks down the dotted key
        for name in known.split("."):
            value = getattr(value, name)
        lines.append(SettingLine(known, _masked(value), settings.origins.get(known, DEFAULT)))
    for family, (_, table) in NAMED_TABLES.items():
        for own, terms in getattr(settings, family).items():
            for name, key_of_it in keys_of(table):
                dotted = f"{family}.{own}.{key_of_it}"
                if dotted in settings.origins:
                    value = _masked_in_table(family, name, getattr(terms, name))
                    lines.append(SettingLine(dotted, value, settings.origins[dotted]))
    return lines if key is None else _chosen(lines, key)


def settings_view(lines: list[SettingLine]) -> dict[str, SettingView]:
    """The settings by their keys."""
    return {line.key: SettingView(value=_plain(line.value), origin=line.origin) for line in lines}


def _masked(value: Any) -> Any:  # Any: each setting has its own kind of value
    """An address without its password; headers as their names."""
    if isinstance(value, dict):
        return dict.fromkeys(value, HIDDEN)
    return redacted(value) if isinstance(value, str) and "://" in value else value


def _masked_in_table(family: str, name: str, value: Any) -> Any:  # Any: as above
    """As `_masked`; a schedule's command as its first word, its addresses without passwords."""
    if family != "schedules" or value is None:
        return _masked(value)
    if name == "command":
        words = value if isinstance(value, tuple) else (HIDDEN,)
        return (words[0], *(HIDDEN for _ in words[1:]))
    if isinstance(value, tuple):
        return tuple(discreet(one) for one in value)
    return discreet(value) if isinstance(value, str) else value


def _chosen(lines: list[SettingLine], key: str) -> list[SettingLine]:
    found = [line for line in lines if line.key == key or line.key.startswith(f"{key}.")]
    if found:
        return found
    names = [line.key for line in lines]
    leaves = [name for name in names if name.rpartition(".")[2] == key]
    near = leaves or difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else f"`gossamer settings` lists all {many(len(names), 'setting')}."
    raise UnknownSetting(f"There is no setting {key!r}. {hint}")


def _plain(value: Any) -> Any:
    """Numbers, texts, lists and tables unchanged; everything else in the notation of gossamer.toml."""
    if isinstance(value, Rate | Size) or not isinstance(value, bool | int | float | str | tuple | list | dict | None):
        return setting_text(value)
    return value
