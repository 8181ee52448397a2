"""A recipe or a spider by example: a person gives pages and the values wanted from them, and gets rules that were tried
on others.

What it does: fetches the example pages and a few pages like them that they link to, learns a rule for every field
(recipe/induction), and writes it as a recipe, or as code (recipe/python_rules.py). How it fails: Misconfigured with the
value that stands nowhere on its page, FetchFailed, FetchRefused; then nothing is written.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ...clock import SystemClock
from ...errors import FetchFailed, FetchRefused, Misconfigured
from ...extract.media import Media
from ...model.item import Item
from ...model.url import site_of
from ...parse.page import Page
from ...recipe.by_example import ExamplePage, FieldByExample, LearnedRules, StartPages, learn_rules, recipe_with
from ...recipe.induction.decision import Decision, Finding
from ...recipe.induction.induce import induce
from ...recipe.induction.page_places import address_shape
from ...recipe.python_file import PlanField, SpiderPlan, python_spider
from ...recipe.python_rules import python_rule
from ...recipe.reader import read_recipe, record_type
from ...recipe.stable_selectors import best_group, next_selector
from ...settings import Settings
from ...units import many
from .recipes import LONGEST_PAUSE, RecipeDrafted, place_for, write_draft
from .scaffold import check_name

MOST_LIKE = 5  # pages like the examples that are fetched
MOST_LISTS = 2  # pages that may list them
_NAME = re.compile(r"[^\W\d_]\w*")


class ByExample(msgspec.Struct, frozen=True, kw_only=True):
    drafted: RecipeDrafted
    fields: list[FieldByExample]
    tried: list[str]  # the other pages

    @property
    def unsure(self) -> list[str]:
        return [field.field for field in self.fields if not field.sure]


def read_examples(words: Sequence[Sequence[str]]) -> list[ExamplePage]:
    """Every example: an address, then NAME=VALUE for each value. Raises Misconfigured."""
    found = []
    for url, *pairs in words:
        values = {}
        for pair in pairs:
            name, equals, value = pair.partition("=")
            if not equals or not _NAME.fullmatch(name) or not value.strip():
                raise Misconfigured(f'{pair[:60]!r} is no value. Write name=value, as in title="Desk lamp".')
            values[name] = value.strip()
        if not values:
            raise Misconfigured(f'Say what stands on {url}: --example {url} title="Desk lamp" price=49.90')
        found.append(ExamplePage(url, values))
    return found


async def recipe_by_example(
    settings: Settings,
    examples: Sequence[ExamplePage],
    name: str | None,
    *,
    folder: Path,
    fetch: Callable[[str], Awaitable[Page]],
    tell: Callable[[str], None] = lambda words: None,
    python: bool = False,
) -> ByExample:
    """Write a recipe, or with `python` a spider, whose rules find the values of the examples. Nothing is overwritten.
    Raises Misconfigured, FetchFailed, FetchRefused."""
    file, name, ref, shown = place_for(settings, examples[0].url, name, folder, python=python)
    if python:
        _demand_names_for_code(examples)
    visitor = _Visitor(settings, fetch, tell)
    pages = [await visitor.demand(one.url) for one in examples]
    others, listing = await _pages_like(visitor, pages)
    learned = learn_rules(examples, pages, others)
    findings = learned.findings
    start = _start_of(examples, listing)
    tried = f"Learned from {many(len(examples), 'example')}; tried on {many(len(others), 'other page')}."
    if python:
        findings, fields = _code_fields(learned)
        as_item = "" if listing is None else " --callback item"
        plan = SpiderPlan(
            class_name=check_name(name).class_name,
            about=f"{tried} `gossamer check {ref} URL{as_item}` shows what it finds.",
            start=tuple(start.urls),
            key=learned.key,
            fields=fields,
            links=start.links,
            allow=start.path,
            following=start.following,
        )
        text = python_spider(plan)
        _demand_python(text)
    else:
        text = recipe_with(learned, start, ref, tried, item=record_type(name))
        read_recipe(text.encode(), str(file))
    write_draft(file, text)
    drafted = RecipeDrafted(file=shown, name=name, ref=ref, summary="listing -> item" if listing else "item")
    return ByExample(drafted=drafted, fields=learned.field_views(findings), tried=[one.url for one in others])


def _demand_names_for_code(examples: Sequence[ExamplePage]) -> None:
    """Raises Misconfigured for a field that Python code cannot name so."""
    for name in dict.fromkeys(name for one in examples for name in one.values):
        usable = name.isidentifier() and not keyword.iskeyword(name)
        if not usable or (name != "url" and (name.startswith("_") or hasattr(Item, name))):
            letters = "".join(one for one in name if f"a{one}".isidentifier()) or "value"
            raise Misconfigured(
                f"{name!r} cannot be the name of a field in Python. Give it another name: {letters}_of_it=..."
            )


def _demand_python(text: str) -> None:
    """Raises Misconfigured for a text that is no Python module."""
    try:
        compile(text, "spider", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Misconfigured(
            f"These fields make no spider in Python ({error}). Rename them, or leave out --python."
        ) from error


def _code_fields(learned: LearnedRules) -> tuple[list[Finding], tuple[PlanField, ...]]:
    """Every field with the code that reads what its rule reads. Where no code does, with the best CSS selector. Raises
    Misconfigured if there is none either."""
    used, fields = [], []
    for goal, finding in zip(learned.goals, learned.findings, strict=True):
        code = python_rule(goal, finding.sources, learned.samples)
        if code is None:
            (finding,) = induce([goal], learned.samples, fresh=True, plain_css=True)
            usable = finding.decision is not Decision.REFUSE
            code = python_rule(goal, finding.sources, learned.samples) if usable else None
        if code is None:
            raise Misconfigured(
                f"{goal.name} has a rule that only a recipe can have. Leave out --python, or leave out {goal.name}=..."
            )
        required = learned.is_required(goal)
        fields.append(PlanField(name=goal.name, type=goal.type, code=code, required=required))
        used.append(finding)
    return used, tuple(fields)


class _Visitor:
    """Fetches pages at the pace of the settings."""

    def __init__(
        self, settings: Settings, fetch: Callable[[str], Awaitable[Page]], tell: Callable[[str], None]
    ) -> None:
        self._clock = SystemClock()
        interval = settings.politeness.rate.interval
        self._pause = min(interval.total_seconds(), LONGEST_PAUSE) if interval is not None else 0.0
        self._fetch, self._tell = fetch, tell
        self._first = True

    async def demand(self, url: str) -> Page:
        if not self._first:
            await self._clock.sleep(self._pause)
        self._first = False
        self._tell(f"Looking at {url}")
        page = await self._fetch(url)
        if page.status >= 400:
            raise FetchRefused(
                f"{page.url} answered {page.status}; nothing can be learned from it.", status=page.status
            )
        if page.media is not Media.HTML:
            raise Misconfigured(f"{page.url} is {page.content_type or 'no HTML'}; examples are HTML pages.")
        return page

    async def attempt(self, url: str) -> Page | None:
        try:
            return await self.demand(url)
        except (FetchFailed, FetchRefused, Misconfigured) as error:
            self._tell(f"  {error}")
            return None


async def _pages_like(visitor: _Visitor, pages: Sequence[Page]) -> tuple[list[Page], Page | None]:
    """A few pages of the same kind as the examples, and a page that lists them, if one was found."""
    shape = address_shape(pages[0].url)
    seen = {page.url for page in pages}
    urls = [url for page in pages for url in _links(page) if address_shape(url) == shape and url not in seen]
    listing: Page | None = None
    lists = [url for url in dict.fromkeys(_links(pages[0])) if _may_list(url, pages[0].url)]
    for url in lists[:MOST_LISTS]:
        page = await visitor.attempt(url)
        like = [one for one in _links(page) if address_shape(one) == shape] if page is not None else []
        if page is not None and len(set(like)) >= 3:
            listing = page
            urls = [*like, *urls]
            break
    fresh = [url for url in dict.fromkeys(urls) if url not in seen]
    step = max(1, len(fresh) // MOST_LIKE)
    found = []
    for url in fresh[::step][:MOST_LIKE]:
        if (page := await visitor.attempt(url)) is not None:
            found.append(page)
    return found, listing


def _links(page: Page) -> list[str]:
    return [url.partition("#")[0] for url in page.links() if site_of(url) == site_of(page.url)]


def _may_list(url: str, example: str) -> bool:
    parts = urlsplit(url)
    return (
        address_shape(url) != address_shape(example)
        and parts.path.strip("/") != ""
        and not re.search(
            r"cart|login|account|basket|register|privacy|terms|contact|about|\.(?:pdf|jpe?g|png|zip|xml)$", url
        )
    )


def _start_of(examples: Sequence[ExamplePage], listing: Page | None) -> StartPages:
    if listing is None:
        return StartPages(urls=[one.url for one in examples])
    shape = address_shape(examples[0].url)
    group = best_group(listing)
    fits = group is not None and sum(address_shape(url) == shape for url in group.urls) >= 0.8 * len(group.urls)
    return StartPages(
        urls=[listing.url],
        links=group.selector if group is not None and fits else "a",
        path="" if fits or not shape[2] else f"/{shape[2]}/",
        following=next_selector(listing) or "",
    )
