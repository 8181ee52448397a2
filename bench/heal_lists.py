# ruff: noqa: E501 - markup is easier to read on one line
"""Whole recipes after a redesign, for bench.heal: lists with `each` and pages of one thing each, all of them redesigned or
half of them. `python -m bench.heal --part lists [--seeds ...]`.

What `gossamer heal` would find is taken into use above the recipe, and the recipe then reads every page: a value counts
as right if it stands in the item with its record's key. An item with a key that no record has is wrong.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Any

import msgspec

from gossamer.model.healing import RulesVersion, text_hash
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import PageFacts, StoredRecord
from gossamer.parse.page import Page
from gossamer.project.spiders.heal import Healing, _heal_kind, chosen_fields
from gossamer.project.spiders.shown_pages import KnownRecords, shown_kind
from gossamer.recipe.induction.goal import agrees
from gossamer.recipe.overlay import with_rules
from gossamer.recipe.reader import read_recipe
from gossamer.recipe.spider import RecipeSpider, check_page, spider_of

from . import heal_sites as sites
from .heal_sites import Catalogue
from .heal_themes import Theme
from .heal_written import MONEY, Written

ON_A_LIST = 10  # records
# By name: lists, half of the pages as they were, at other addresses.
CASES = {
    "lists": (True, False, False),
    "lists, half": (True, True, False),
    "details, half": (False, True, False),
    "details, moved": (False, False, True),
}
_SCRIPTS = ("state", "island", "props", "stream", "listed")  # without blocks of HTML


def whole_recipes(site: Theme | Written, shown: Catalogue, known: int) -> dict[str, Counter[str]]:
    """By case."""
    if getattr(site, "layout", "") in _SCRIPTS or getattr(site, "frame", "") in _SCRIPTS:
        cases = {"details, half": (False, True, False), "details, moved": (False, False, True)}
    else:
        cases = CASES
    return {
        name: _healed(site, shown, known, lists=lists, half=half, moved=moved)
        for name, (lists, half, moved) in cases.items()
    }


def _recipe(kind: str, currency: str, *, lists: bool) -> RecipeSpider:
    fields = "\n".join(
        f'{name} = {{ css = ".was-{name}{"::attr(src)" if name == "image" else ""}", type = "{what}"'
        + (f', currency = "{currency}"' if what == "money" else "")
        + "}"
        for name, what in sites.FIELDS[kind].items()
    )
    each = 'each = ".was-card"\n' if lists else ""
    key = sites.KEYS[kind]
    text = (
        f'start = "https://site.example/"\n[pages.shelf]\nitem = "Thing"\nkey = "{key}"\n{each}[pages.shelf.fields]\n'
        f"{fields}\n"
    ).replace(f'{key} = {{ css = ".was-{key}"', f'{key} = {{ required = true, css = ".was-{key}"')
    return spider_of(read_recipe(text.encode(), "shelf.toml"))()


def _old_card(one: dict[str, Any], currency: str) -> str:
    cells = []
    for name, value in one.items():
        if name == "image":
            cells.append(f'<img class=was-image src="{value}">')
        elif not name.startswith("_"):
            text = (
                f"{value} {currency}"
                if name in MONEY
                else {True: "yes", False: "no"}.get(value, value)
                if isinstance(value, bool)
                else value
            )
            cells.append(f"<span class=was-{name}>{html.escape(str(text))}</span>")
    return f"<div class=was-card>{''.join(cells)}</div>"


def _block(site: Theme | Written, one: dict[str, Any]) -> str:
    if isinstance(site, Written):
        return f'<li class="{site.hashed("tile")}">{site.block(one)}</li>'
    draw = getattr(site, f"_{site.frame}")
    return f"<li{site.attrs('tile')}>{draw(one)}</li>"


def _pages(site: Theme | Written, shown: Catalogue, *, lists: bool, half: bool) -> list[tuple[str, str]]:
    """Address and text of every page."""
    count = len(shown.new)
    if not lists:
        near = [[shown.new[(one["_n"] * 3 + step) % count] for step in (1, 2, 5)] for one in shown.new]
        return [
            (
                f"/item/{at}",
                f"<html><body>{_old_card(one, site.currency)}</body></html>"
                if half and at % 2
                else site.page(one, near[at]),
            )
            for at, one in enumerate(shown.new)
        ]
    made = []
    for number, at in enumerate(range(0, count, ON_A_LIST)):
        some = shown.new[at : at + ON_A_LIST]
        if half and number % 2:
            body = "".join(_old_card(one, site.currency) for one in some)
        else:
            body = f"<ul>{''.join(_block(site, one) for one in some)}</ul>"
        menu = "<nav><ul><li><a href=/>Home</a></li><li><a href=/a>All</a></li><li><a href=/b>New</a></li></ul></nav>"
        made.append(
            (
                f"/list/{number}",
                f"<!doctype html><html><body>{menu}<h1>Things</h1>{body}<footer>1998</footer></body></html>",
            )
        )
    return made


def _stored(one: dict[str, Any], currency: str) -> dict[str, Any]:
    return {
        name: {"amount": str(value), "currency": currency}
        if name in MONEY
        else value.isoformat()
        if isinstance(value, date)
        else value
        for name, value in one.items()
        if not name.startswith("_")
    }


def _healed(
    site: Theme | Written, shown: Catalogue, known: int, *, lists: bool, half: bool, moved: bool
) -> Counter[str]:
    kind, currency = shown.kind, site.currency
    spider, key = _recipe(kind, currency, lists=lists), sites.KEYS[kind]
    rules = spider.recipe.kinds["shelf"]
    chosen = sorted({at * len(shown.old) // known for at in range(min(known, len(shown.old)))})
    stored = [
        StoredRecord(
            type="Thing", site="site.example", key=shown.old[at][key], url=f"https://site.example/item/{at}",
            job="was-1", spider="shelf", data=_stored(shown.old[at], currency), first_seen=1.0, last_changed=1.0,
            last_checked=1.0, version=1,
        )
        for at in chosen
    ]  # fmt: skip
    copies = []
    for path, text in _pages(site, shown, lists=lists, half=half):
        url = f"https://site.example{'/new' if moved else ''}{path}"
        headers = Headers([("content-type", "text/html; charset=utf-8")])
        copy = Snapshot(
            url=url, requested_url=url, status=200, headers=headers, body=text.encode(), fetched_at=2.0, kind="shelf"
        )
        facts = PageFacts(
            fingerprint=url.encode(), url=url, job="now-1", fetched_at=2.0, status=200, archive_ref="x", spider="shelf"
        )
        copies.append((facts, copy))
    found = _heal_kind(spider, rules, shown_kind(spider, rules, copies, KnownRecords(rules, stored)), {}, None)
    count: Counter[str] = Counter()
    if found is not None:
        count.update(one.decision.value for one in found.fields)
        healing = Healing(
            spider="shelf",
            file="shelf.toml",
            site="site.example",
            rules=0,
            ended=False,
            read=len(copies),
            kinds=[found],
            left_out=[],
        )
        if fields := chosen_fields(healing):
            marked = tuple(msgspec.structs.replace(one, since=1) for one in fields)
            version = RulesVersion(version=1, text=text_hash(spider.recipe.text), at=2.0, by="bench", fields=marked)
            spider = with_rules(spider, version)
    return count + _read(spider, [Page(copy, spider=spider) for _, copy in copies], shown, currency)


def _read(spider: RecipeSpider, pages: Sequence[Page], shown: Catalogue, currency: str) -> Counter[str]:
    from .heal import goals_of, value_of

    kind, key = shown.kind, sites.KEYS[shown.kind]
    goals = goals_of(kind)
    wanted = {one[key]: one for one in shown.new}
    count: Counter[str] = Counter()
    given: set[tuple[str, str]] = set()
    for page in pages:
        for item in check_page(spider, "shelf", page).items:
            record = wanted.get(getattr(item, key, None))
            for goal in goals:
                value = getattr(item, goal.name, None)
                if value is None:
                    continue
                right = record is not None and agrees(value, value_of(record[goal.name], currency), goal)
                count["right" if right else "wrong"] += 1
                if record is not None:
                    given.add((record[key], goal.name))
    count["missing"] = len(wanted) * len(goals) - len(given)
    return count
