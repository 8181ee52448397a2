"""How much of a redesigned site is read again by rules learned from stored values. `python -m bench.heal [--held-out]`;
with `--seeds a b c`, on themes that are drawn (heal_themes.py), and with `--peers` by Scrapling and AutoScraper.

Every row: for a number of known pages, the share of values that the healed rules read right, wrong (another value was
stored) or not at all, over all pages of all sites, with the fields that were healed, proposed and refused. A rule that
is proposed counts as missing in `unasked` and as applied in `with a person`. Traps must not be healed.
"""

from __future__ import annotations

import argparse
import html
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from gossamer import Money
from gossamer.model.page import Headers, Snapshot
from gossamer.parse.page import Page
from gossamer.recipe.draft import detail_links, draft_recipe
from gossamer.recipe.induction.candidates import compiled, value_on
from gossamer.recipe.induction.decision import Decision, Finding
from gossamer.recipe.induction.goal import Goal, Sample, agrees, plain
from gossamer.recipe.induction.induce import induce
from gossamer.recipe.model import FieldType, TypeOptions
from gossamer.recipe.reader import read_recipe
from gossamer.recipe.sources import PagePart, PageView
from gossamer.recipe.spider import RecipeSpider, check_page, spider_of

from . import heal_sites as sites
from .crawlers import PEER_PYTHON
from .heal_lists import whole_recipes
from .heal_sites import LOCALES, drawn, hash_of, old_layout
from .heal_themes import Theme, pages_of
from .heal_written import LAYOUTS, Written

KNOWN = (1, 2, 5, 20, 48)


def page(text: str, number: int) -> Page:
    url = f"https://site.example/item/{number}"
    return Page(
        Snapshot(
            url=url,
            requested_url=url,
            status=200,
            headers=Headers([("content-type", "text/html; charset=utf-8")]),
            body=text.encode(),
            fetched_at=1_700_000_000.0,
        )
    )


def goals_of(kind: str) -> list[Goal]:
    return [
        Goal(name=name, options=TypeOptions(type=FieldType(what)), key=name == sites.KEYS[kind])
        for name, what in sites.FIELDS[kind].items()
    ]


def value_of(value: Any, currency: str = "EUR") -> Any:
    if isinstance(value, Decimal):
        return Money(value, currency)
    return value


def values_of(record: dict[str, Any], currency: str = "EUR") -> dict[str, Any]:
    return {name: value_of(value, currency) for name, value in record.items() if not name.startswith("_")}


def samples_of(texts: list[str], old: list[dict[str, Any]], known: int, currency: str = "EUR") -> list[Sample]:
    """`known` pages with what was stored of them, spread over the catalogue; the others without."""
    chosen = {at * len(old) // known for at in range(min(known, len(old)))}
    return [
        Sample(
            part=PagePart(PageView(page(text, number))),
            values=values_of(old[number], currency) if number in chosen else None,
            name=f"/item/{number}",
        )
        for number, text in enumerate(texts)
    ]


def measure(
    goals: list[Goal],
    findings: list[Finding],
    samples: list[Sample],
    records: list[dict[str, Any]],
    *,
    proposed: bool,
    currency: str = "EUR",
) -> Counter[str]:
    count: Counter[str] = Counter()
    for goal, finding in zip(goals, findings, strict=True):
        used = finding.decision is Decision.HEAL or (proposed and finding.decision is Decision.PROPOSE)
        count[finding.decision.value] += 1
        rule = compiled(goal, finding.sources) if used else None
        for sample, record in zip(samples, records, strict=True):
            found = value_on(rule, sample) if rule is not None else None
            if found is None:
                count["missing"] += 1
            else:
                wanted = value_of(record[goal.name], currency)
                count["right" if agrees(found, wanted, goal) else "wrong"] += 1
    return count


def cases(held_out: bool) -> Iterator[tuple[str, str]]:
    for kind in sites.FIELDS:
        for layout in sites.LAYOUTS:
            if (layout in sites.HELD_OUT) == held_out:
                yield kind, layout


def row(name: str, count: Counter[str]) -> str:
    total = sum(count[word] for word in ("right", "wrong", "missing")) or 1
    shares = "  ".join(f"{100 * count[word] / total:5.1f}" for word in ("right", "wrong", "missing"))
    return f"{name:<34} {shares}   {count['heal']:4} {count['propose']:4} {count['refuse']:4}"


def run(held_out: bool, verbose: bool, only: str, counts: tuple[int, ...]) -> None:
    print(f"{'':<34} right  wrong  missing  heal prop refuse")
    for structured in (False, True):
        for known in counts:
            total: Counter[str] = Counter()
            person: Counter[str] = Counter()
            pages, began = 0, time.process_time()
            for kind, layout in cases(held_out):
                if only and only not in f"{kind}/{layout}":
                    continue
                shown = sites.catalogue(kind, 1)
                goals = goals_of(kind)
                samples = samples_of(sites.pages_of(shown, layout, structured=structured), shown.old, known)
                findings = induce(goals, samples, fresh=False)
                pages += len(samples)
                one = measure(goals, findings, samples, shown.new, proposed=False)
                total += one
                person += measure(goals, findings, samples, shown.new, proposed=True)
                if verbose:
                    print(row(f"  {kind}/{layout}", one))
                    for finding in findings:
                        print(
                            f"      {finding.field:<12} {finding.decision:<8} {finding.reason} {list(finding.sources)}"
                        )
            spent = time.process_time() - began
            what = "structured" if structured else "plain"
            print(row(f"{what}, {known} known: unasked", total))
            print(row(f"{what}, {known} known: with a person", person), f" {1000 * spent / max(pages, 1):.0f} ms/page")


def by_example(held_out: bool, verbose: bool, only: str) -> None:
    """Values that a person read from the pages as they are."""
    for known in (1, 2):
        total: Counter[str] = Counter()
        for kind, layout in cases(held_out):
            if only and only not in f"{kind}/{layout}":
                continue
            shown = sites.catalogue(kind, 2)
            goals = goals_of(kind)
            samples = samples_of(sites.pages_of(shown, layout), shown.new, known)
            findings = induce(goals, samples, fresh=True)
            one = measure(goals, findings, samples, shown.new, proposed=True)
            total += one
            if verbose:
                print(row(f"  {kind}/{layout}", one))
                for finding in findings:
                    print(f"      {finding.field:<12} {finding.decision:<8} {finding.reason} {list(finding.sources)}")
        print(row(f"by example, {known} pages", total))


def site_of_seed(seed: str, kind: str, *, changed: float = 0.3) -> tuple[Theme | Written, sites.Catalogue]:
    """The site of a seed, or the written one of this name, and its catalogue."""
    shown = sites.catalogue(kind, abs(hash_of(seed)) % 1000, changed=changed)
    if seed not in LAYOUTS:
        return Theme(seed, kind), shown
    theme = Written(seed, kind)
    return theme, theme.prepared(shown)


def by_seed(seeds: Sequence[str], verbose: bool, counts: tuple[int, ...]) -> None:
    """Themes drawn by seeds: three kinds for each seed, healed with so many known pages, and by example."""
    for known, fresh in [*((count, False) for count in counts), (1, True), (2, True)]:
        total: Counter[str] = Counter()
        for seed in seeds:
            for kind in sites.FIELDS:
                theme, shown = site_of_seed(seed, kind)
                goals, texts = goals_of(kind), pages_of(shown, theme)
                stored = shown.new if fresh else shown.old
                if fresh:  # a person types what stands on the page
                    stored = [theme.as_shown(one) for one in stored]
                    shown = sites.Catalogue(shown.kind, shown.old, stored)
                samples = samples_of(texts, stored, known, theme.currency)
                findings = induce(goals, samples, fresh=fresh)
                one = measure(goals, findings, samples, shown.new, proposed=fresh, currency=theme.currency)
                total += one
                if verbose:
                    print(row(f"  {seed} {kind}/{theme.name}", one))
                    for finding in findings:
                        if finding.decision is not Decision.HEAL:
                            told = f"{finding.decision:<8} {finding.reason} {list(finding.sources)}"
                            print(f"      {finding.field:<12} {told}")
                    _print_wrong(goals, findings, samples, shown, theme, fresh=fresh)
        print(row(f"drawn, {'by example, ' if fresh else ''}{known} known", total))


def lists(seeds: Sequence[str], verbose: bool, counts: tuple[int, ...]) -> None:
    """Lists with `each`, and half of a redesign."""
    for known in counts:
        totals: dict[str, Counter[str]] = {}
        for seed in seeds:
            for kind in sites.FIELDS:
                for name, count in whole_recipes(*site_of_seed(seed, kind), known).items():
                    totals.setdefault(name, Counter()).update(count)
                    if verbose:
                        print(row(f"  {seed} {kind} {name}", count))
        for name, count in totals.items():
            print(row(f"{name}, {known} known", count))


def drafts(seeds: Sequence[str], verbose: bool) -> None:
    """What `gossamer new --recipe` takes from these sites, of which it knows nothing. A field counts as the one of the
    record with whose values it agrees most; a field with the name of another one that says something else is wrong."""
    total: Counter[str] = Counter()
    for seed in seeds:
        for kind in sites.FIELDS:
            theme = Theme(seed, kind)
            shown = sites.catalogue(kind, abs(hash_of(seed)) % 1000)
            pages = [page(text, number) for number, text in enumerate(pages_of(shown, theme))]
            records = [theme.as_shown(one) for one in shown.new]
            start = _list_page(records)
            links = detail_links(start)
            draft = draft_recipe(start, [one for one in pages if one.url in links], "draft")
            spider = spider_of(read_recipe(draft.text.encode(), "draft.toml"))()
            found = [_drafted(spider, one) for one in pages]
            one = Counter[str]()
            for goal in goals_of(kind):
                wanted = [value_of(record[goal.name], theme.currency) for record in records]
                one += _as_drafted(goal, wanted, found)
            total += one
            if verbose:
                print(row(f"  {seed} {kind}/{theme.name}", one), draft.summary, list(found[0]))
    print(row("drafts, nothing known", total))


def _list_page(records: Sequence[dict[str, Any]]) -> Page:
    cards = "".join(
        f"<li class=card><h3><a href='/item/{number}'>{html.escape(str(one['title']))}</a></h3></li>"
        for number, one in enumerate(records)
    )
    snapshot = page(f"<html><body><ol class=results>{cards}</ol></body></html>", 0).snapshot
    url = "https://site.example/all"
    return Page(msgspec.structs.replace(snapshot, url=url, requested_url=url))


def _drafted(spider: RecipeSpider, one: Page) -> dict[str, Any]:
    items = check_page(spider, list(spider.recipe.kinds)[-1], one).items
    return {name: getattr(items[0], name) for name in items[0].__struct_fields__ if name != "url"} if items else {}


def _as_drafted(goal: Goal, wanted: Sequence[Any], found: Sequence[dict[str, Any]]) -> Counter[str]:
    def is_right(value: Any, known: Any) -> bool:
        if isinstance(value, Money | int | float) and isinstance(known, Money | int | float):
            return float(getattr(value, "amount", value)) == float(getattr(known, "amount", known))
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        same = isinstance(value, type(known)) and not isinstance(value, list)
        return same and bool(agrees(value, known, goal))

    names = dict.fromkeys(name for one in found for name in one)
    pairs = {name: [(one.get(name), known) for one, known in zip(found, wanted, strict=True)] for name in names}
    best = max(names, key=lambda name: (sum(is_right(*pair) for pair in pairs[name]), name == goal.name), default="")
    if sum(is_right(*pair) for pair in pairs.get(best, ())) < 0.5 * len(found):
        best = goal.name
    told = pairs.get(best, [(None, known) for known in wanted])
    return Counter(
        "missing" if value in (None, "", []) else "right" if is_right(value, known) else "wrong"
        for value, known in told
    )


def drawn_traps(seeds: Sequence[str], verbose: bool) -> None:
    """On the sites of these seeds: a field that is gone while decoys stay, and most prices changed at once."""
    for name in ("gone", "prices"):
        count: Counter[str] = Counter()
        for seed in seeds:
            for kind, gone in (("shop", "brand"), ("jobs", "company"), ("flats", "agent")):
                money = {"shop": "price", "flats": "rent"}.get(kind)
                field = gone if name == "gone" else money
                if field is None:
                    continue
                theme, shown = site_of_seed(seed, kind, changed=0.85 if name == "prices" else 0.3)
                if name == "gone":
                    bare = [{key: value for key, value in one.items() if key != field} for one in shown.new]
                    shown = sites.Catalogue(kind, shown.old, bare)
                samples = samples_of(pages_of(shown, theme), shown.old, 20, theme.currency)
                for finding in induce(goals_of(kind), samples):
                    if finding.field == field:
                        count[finding.decision.value] += 1
                        if verbose and finding.decision is not Decision.REFUSE:
                            print(
                                f"   {name} {kind}/{theme.name} {finding.decision} {finding.reason} {finding.sources}"
                            )
        print(f"drawn trap {name:<10} heal {count['heal']}, propose {count['propose']}, refuse {count['refuse']}")


def peers(seeds: Sequence[str], known: int) -> None:
    """Scrapling and AutoScraper on the sites of these seeds. A text counts as right if the value stands in it; pictures
    are left out."""
    totals: dict[str, Counter[str]] = {}
    for seed in seeds:
        for kind in sites.FIELDS:
            theme, shown = Theme(seed, kind), sites.catalogue(kind, abs(hash_of(seed)) % 1000)
            names = [name for name in sites.FIELDS[kind] if name != "image"]
            chosen = [at * len(shown.old) // known for at in range(known)]
            order = {
                "before": [old_layout(drawn(one, LOCALES["en"]), []) for one in shown.old],
                "after": pages_of(shown, theme),
                "selectors": {name: "h1" if name == "title" else f".{name}" for name in names},
                "known": {at: {name: theme.text(name, shown.old[at][name]) for name in names} for at in chosen},
            }
            done = subprocess.run(
                [str(PEER_PYTHON), "-m", "bench.peers.heal_peers"],
                input=json.dumps(order),
                capture_output=True,
                text=True,
                check=True,
                timeout=600,
            )
            for peer, found in json.loads(done.stdout).items():
                count = totals.setdefault(peer, Counter())
                for one, values in zip(shown.new, found, strict=True):
                    for name in names:
                        told, wanted = values[name], plain(theme.text(name, one[name]))
                        word = "missing" if not told else "right" if wanted in plain(told) else "wrong"
                        count[word] += 1
    for peer, count in totals.items():
        print(row(f"{peer}, {known} known", count))


def _print_wrong(
    goals: list[Goal],
    findings: list[Finding],
    samples: list[Sample],
    shown: sites.Catalogue,
    theme: Theme | Written,
    *,
    fresh: bool,
) -> None:
    for goal, finding in zip(goals, findings, strict=True):
        used = finding.decision is Decision.HEAL or (fresh and finding.decision is Decision.PROPOSE)
        rule = compiled(goal, finding.sources) if used else None
        for sample, record in zip(samples, shown.new, strict=True):
            found = value_on(rule, sample) if rule is not None else None
            wanted = value_of(record[goal.name], theme.currency)
            if rule is not None and not agrees(found, wanted, goal):
                print(f"      WRONG {goal.name}: {found!r} for {wanted!r} {list(finding.sources)}"[:300])
                break


def traps(verbose: bool, held_out: bool) -> None:
    """What must not be healed: each trap says which fields."""
    for name in ("gone", "wall", "currency", "prices"):
        count: Counter[str] = Counter()
        for kind, layout in cases(held_out):
            money = "price" if kind == "shop" else "rent"
            if name in ("currency", "prices") and kind == "jobs":
                continue
            shown = sites.catalogue(kind, 3, changed=0.85 if name == "prices" else 0.3)
            field = {"gone": "brand" if kind == "shop" else "company" if kind == "jobs" else "agent"}.get(name, money)
            texts = _trapped(name, shown, layout, field)
            findings = induce(goals_of(kind), samples_of(texts, shown.old, 20))
            for finding in findings:
                if finding.field == field or name == "wall":
                    count[finding.decision.value] += 1
                    if verbose and finding.decision is not Decision.REFUSE:
                        print(
                            f"   {name} {kind}/{layout} {finding.field} {finding.decision}"
                            f" {finding.reason} {finding.sources}"
                        )
        print(f"trap {name:<10} heal {count['heal']}, propose {count['propose']}, refuse {count['refuse']}")


def _trapped(name: str, shown: sites.Catalogue, layout: str, field: str) -> list[str]:
    if name == "wall":
        return [
            "<html><body><h1>Sign in</h1><form><input name=user><p>Example since 1998</p></form></body></html>"
        ] * 60
    if name == "gone":
        bare = sites.Catalogue(
            shown.kind, shown.old, [{k: v for k, v in one.items() if k != field} for one in shown.new]
        )
        return sites.pages_of(bare, layout)
    texts = sites.pages_of(shown, layout)
    if name == "currency":
        texts = [text.replace("€", "£").replace("EUR", "GBP") for text in texts]  # `state` has none: a bare number
    return texts


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--held-out", action="store_true", help="the themes that were kept aside")
    flags.add_argument("--only", default="", help="kind/layout")
    flags.add_argument("--known", type=int, nargs="*", default=KNOWN)
    flags.add_argument("-v", "--verbose", action="store_true")
    flags.add_argument("--part", choices=("all", "heal", "example", "traps", "drafts", "lists"), default="all")
    flags.add_argument("--peers", action="store_true", help="with --seeds: Scrapling and AutoScraper on the same sites")
    flags.add_argument("--seeds", nargs="*", default=[], help="themes drawn by these seeds, and nothing else")
    given = flags.parse_args()
    if given.seeds and given.peers:
        peers(given.seeds, max(given.known))
        return
    if given.part == "lists":
        lists(given.seeds or LAYOUTS, given.verbose, tuple(given.known))
        return
    if given.seeds and given.part == "drafts":
        drafts(given.seeds, given.verbose)
        return
    if given.seeds:
        if given.part != "traps":
            by_seed(given.seeds, given.verbose, tuple(given.known))
        drawn_traps(given.seeds, given.verbose)
        return
    if given.part in ("all", "heal"):
        run(given.held_out, given.verbose, given.only, tuple(given.known))
    if given.part in ("all", "example"):
        by_example(given.held_out, given.verbose, given.only)
    if given.part in ("all", "traps"):
        traps(given.verbose, given.held_out)


if __name__ == "__main__":
    main()
