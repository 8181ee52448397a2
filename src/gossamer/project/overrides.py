"""Overrides: settings that an admin sets by hand while workers run, on every process within seconds.

A rate, a budget, a route, a proxy, the threshold of an alert: whatever settings/overrides.py lists. The commands, the
endpoints and the client's calls are made of OPERATIONS; the dashboard and `gossamer site slow` call the same functions.
How it fails: UnknownSetting, Misconfigured for a value that the setting cannot have, NotThere, BackendUnavailable.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from ..clock import iso_time
from ..errors import Misconfigured, NotThere
from ..model.override import Override
from ..settings import overridden
from ..settings.overrides import LONGEST, place_of, text_at
from ..terms import routing_of
from ..units import moment, parse_duration, visible
from .access.keys import ADMIN, JOBS, Caller, note_write
from .live_settings import MOST, kind_of, read_overrides, with_overrides
from .open import Project
from .operation import Operation
from .sites.domain_names import domain_fault
from .sites.proxies import pool_members

LONGEST_TIME = 366.0 * 86_400.0  # seconds that an override with an end may hold
Words = Annotated[str, Meta(max_length=LONGEST)]
Short = Annotated[str, Meta(max_length=50)]
Key = Annotated[str, Meta(min_length=1, max_length=LONGEST, description="The setting: domains.shop.example.rate.")]


class OverrideView(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that was set by hand. Times are ISO 8601 in UTC."""

    key: str
    value: str
    usual: str  # what holds without it: of gossamer.toml, the environment or a default; "" if that says nothing
    at: str
    by: str  # the name of the key that set it; "local" on the command line
    until: str | None
    reason: str
    fault: str | None  # why it does not count in this process

    @property
    def in_words(self) -> str:
        usual = f"instead of {self.usual}" if self.usual else "where the settings say nothing"
        end = f", until {self.until}" if self.until else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.value} {usual}, set by hand by {self.by}, {self.at}{end}{why}"


class NewOverride(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: Key
    value: Annotated[str, Meta(max_length=LONGEST, description="As in gossamer.toml: 6/m, 100, direct,browser, none.")]
    lasts: Annotated[Short | None, Meta(description="For how long: 2h. Default: until it is removed.")] = None
    reason: Annotated[Words | None, Meta(description="Why; others will ask.")] = None


class OverrideQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prefix: Annotated[Words | None, Meta(description="Only keys that begin with this.")] = None


class OverrideKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: Key


async def set_override(project: Project, caller: Caller, new: NewOverride) -> OverrideView:
    """Set it, in place of an earlier one of the same setting."""
    kind, now = kind_of(project.state), project.clock.now()
    until = now + _seconds(new.lasts) if new.lasts else None
    row = Override(
        key=new.key,
        value=new.value.strip(),
        at=now,
        by=caller.name,
        until=until,
        reason=visible((new.reason or "").strip()),
    )
    usual = project.live.own
    _check(project, row)
    before = await kind.get(new.key)
    if before is None and await project.state.shelf.count(kind.name) >= MOST:
        raise Misconfigured(f"There are {MOST:,} overrides already. Write what is to stay into gossamer.toml.")
    await project.state.shelf.commit([kind.put(row.key, row, at=now, until=until)])
    await read_overrides(project.state, project.live.overrides)
    end = f" for {new.lasts}" if new.lasts else ""
    was = before.value if before is not None else text_at(usual, new.key) or "unset"
    await note_write(project, caller, "set by hand:", target=f"{row.key} = {row.value}{end}, was {was}")
    return _view(project, row)


async def list_overrides(project: Project, caller: Caller, query: OverrideQuery) -> list[OverrideView]:
    """By key. What this process has noticed: the newest change may be two seconds old."""
    await read_overrides(project.state, project.live.overrides)
    return [_view(project, one) for one in project.live.overrides.rows if one.key.startswith(query.prefix or "")]


async def remove_override(project: Project, caller: Caller, asked: OverrideKey) -> OverrideView:
    """The settings decide again. Raises NotThere."""
    kind = kind_of(project.state)
    row = await kind.get(asked.key)
    if row is None:
        raise NotThere(f"{visible(asked.key)} is not set by hand. `gossamer override list` lists what is.")
    view = _view(project, row)
    await project.state.shelf.commit([kind.drop(row.key)])
    await read_overrides(project.state, project.live.overrides)
    await note_write(project, caller, "taken back:", target=f"{row.key}, was {row.value}")
    return view


def site_overrides(project: Project, site: str) -> list[OverrideView]:
    """Of one site, as this process knows them."""
    return [_view(project, one) for one in project.live.overrides.of_site(site)]


class RestByHand(NamedTuple):
    """No request is sent to a site: by whose word, and until when, if that is known."""

    words: str
    until: float | None

    def in_words(self, now: float) -> str:
        return f"rests until {moment(self.until, now)}, {self.words}" if self.until is not None else self.lasting

    @property
    def lasting(self) -> str:
        return f"rests, {self.words}"


def rest_of(project: Project, site: str) -> RestByHand | None:
    """The rest that the settings or an admin give the site; None if it may be asked."""
    if not project.settings.domain(site).rest:
        return None
    found = next((one for one in project.live.overrides.of_site(site) if one.key.endswith(".rest")), None)
    if found is None:
        return RestByHand("as the settings say", None)
    return RestByHand(
        f"set by hand by {found.by}" + (", until that is taken back" if found.until is None else ""), found.until
    )


def rest_words(project: Project, site: str) -> str:
    """Says that no request is sent to the site, until when, and by whose word; "" if that is not so."""
    rest = rest_of(project, site)
    return rest.in_words(project.clock.now()) if rest is not None else ""


def _check(project: Project, row: Override) -> None:
    """Raises Misconfigured for one that could not be in force together with the others."""
    place = place_of(row.key)
    others = [one for one in project.live.overrides.rows if one.key != row.key]
    settings, _ = with_overrides(project.live.own, others)
    routing = routing_of(overridden(settings, row.key, row.value))
    if place.family == "domains":
        routing.terms_for(place.name)
        if fault := domain_fault(place.name):
            raise Misconfigured(fault)
    if place.family == "proxies" and place.member and place.member not in pool_members(project.settings, place.name):
        raise Misconfigured(f"{visible(place.member)} is not a proxy of {place.name}. See `gossamer proxies`.")


def _seconds(lasts: str) -> float:
    try:
        seconds = parse_duration(lasts).total_seconds()
    except ValueError as error:
        raise Misconfigured(f"{error}.") from error
    if not 1 <= seconds <= LONGEST_TIME:
        raise Misconfigured("An override that ends lasts from 1s to 366d.")
    return seconds


def _view(project: Project, row: Override) -> OverrideView:
    try:
        usual = text_at(project.live.own, row.key)
    except Misconfigured:
        usual = ""
    return OverrideView(
        key=row.key,
        value=row.value,
        usual=usual,
        at=iso_time(row.at),
        by=row.by,
        until=iso_time(row.until) if row.until is not None else None,
        reason=row.reason,
        fault=project.live.faults.get(row.key),
    )


OPERATIONS: tuple[Operation[Any, Any], ...] = (  # Any: each has its own types
    Operation(
        verb="override set", summary="Set a setting by hand, on every process within seconds",
        arguments=("key", "value"),
        method="POST", path="/api/v1/overrides", scope=ADMIN, ask=NewOverride, gives=OverrideView, run=set_override,
        words=lambda one: f"{one.key}: {one.in_words}.",
        example={"key": "router.budget_day", "value": "500", "lasts": "6h", "reason": "the sale"},
        begins=lambda settings: True,
    ),
    Operation(
        verb="override list", summary="List what is set by hand, and what the settings say",
        columns=("key", "value", "usual", "by", "at", "until", "reason"),
        method="GET", path="/api/v1/overrides", scope=JOBS, ask=OverrideQuery, gives=list[OverrideView],
        run=list_overrides,
        nothing="Nothing is set by hand: everything is as gossamer.toml says.",
    ),
    Operation(
        verb="override remove", summary="Go back to what the settings say", arguments=("key",),
        method="DELETE", path="/api/v1/overrides", scope=ADMIN, ask=OverrideKey, gives=OverrideView,
        run=remove_override,
        words=lambda one: f"{one.key} is as the settings say: {one.usual or 'not set'}.",
    ),
)  # fmt: skip
