"""How stable the rules of a recipe are, by a few of its newest archived pages. A child process reads them
(../pages/page_child.py). How it fails: NotThere for a spider that is no recipe or has no pages; BackendUnavailable."""

from __future__ import annotations

import asyncio

import msgspec

from ...errors import Misconfigured, NotThere, Permanent
from ...model.record import PageFacts
from ...parse.discovery import load_spider, made_spider
from ...recipe.induction.stability import RuleStability
from ...recipe.spider import RecipeSpider
from ...store.page_format import read_visit
from ..access.keys import Caller
from ..open import Project
from ..pages.page_child import SentPage, WeighRules, sent_page
from ..pages.results import PageReader
from .rules import held_rules
from .shown_pages import newest_visits

SECONDS = 20.0
MOST_PAGES = 6
MOST_WORK = 16 * 1024 * 1024  # bytes of these pages times fields: half of that time


async def rule_stability(project: Project, pages: PageReader, caller: Caller, name: str) -> list[RuleStability]:
    """For every field of the recipe: which other places of a few pages say what its rule reads. Raises NotThere,
    Misconfigured."""
    settings = project.settings
    spider = await asyncio.to_thread(lambda: made_spider(load_spider(name, settings.root, settings.spiders)))
    if not isinstance(spider, RecipeSpider):
        raise NotThere(f"{name} is a spider in Python.")
    newest = await newest_visits(project, name, only_good=True)
    visits = [one for one in newest if await pages.may_read(caller, one)]
    recipe = spider.recipe
    most = MOST_WORK // max(1, sum(len(kind.fields) for kind in recipe.kinds.values()))
    chosen: list[tuple[PageFacts, SentPage]] = []
    for one in visits[:: max(1, len(visits) // MOST_PAGES)][:MOST_PAGES]:
        try:
            page = sent_page(await read_visit(project.archive, one))
        except Permanent:
            continue
        if len(page.body) <= most or not chosen:
            chosen.append((one, page))
            most -= len(page.body)
    if not chosen:
        raise NotThere(f"No page of {name} is in the archive.")
    others = tuple(page for _, page in chosen[1:])
    work = WeighRules(recipe.text.encode(), recipe.file, await held_rules(project, spider), others)
    answer = await pages.ask_of(caller, chosen[0][0], work, SECONDS)
    if answer is None:
        raise Misconfigured(
            f"The rules of {name} were not compared with its pages within {SECONDS:g} s: the pages are large, or this "
            f"machine is busy. Try again later."
        )
    if answer.failure or answer.fault:
        raise Misconfigured(answer.failure or answer.fault)
    return msgspec.convert(answer.content, list[RuleStability])
