"""Values chosen on an archived page, and the recipe that finds them: `gossamer new --example` for the dashboard.

What it does: a child process (page_child.py) lists the texts of the page and learns the rules, tried on a few other
archived pages at like addresses. Nothing is requested, and only `save_recipe` writes: a new file. How it fails:
BadRequest for a value that is not on the page, a page that is not in the archive, and rules that take too long;
Misconfigured for a name that is taken; BackendUnavailable.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from itertools import islice

import msgspec

from ...errors import Permanent
from ...model.record import PageFacts
from ...recipe.by_example import FieldByExample
from ...recipe.induction.outline import PageOutline
from ...recipe.induction.page_places import address_shape
from ...recipe.reader import read_recipe, record_type
from ...store.contract import VisitQuery
from ...store.page_format import read_visit
from ..access.keys import Caller
from ..jobs.api_jobs import public_url
from ..jobs.api_requests import BadRequest
from ..open import Project
from ..spiders.recipes import new_recipe, write_draft
from .page_child import LearnedHere, LearnRules, OutlinePage, SentPage, sent_page
from .results import PageReader

SECONDS = 20.0  # for a child
MOST_OTHERS = 5  # pages on which rules are tried
MOST_VISITS = 2_000  # among which these are looked for
MOST_LIKE = 30  # of which these are some
LARGEST = 2 * 1024 * 1024  # bytes of one of them
MOST_FIELDS = 30
_NAME = re.compile(r"[a-z]\w{0,40}")


class RecipeHere(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe by example; `command` writes it with the list that leads to such pages."""

    recipe: str
    fields: list[FieldByExample]
    tried: int
    command: str


class SavedRecipe(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    file: str  # below the project's folder


async def page_outline(project: Project, pages: PageReader, caller: Caller, url: str) -> PageOutline | None:
    """None if the page is not in the archive. Raises BadRequest."""
    copy = await _newest(project, pages, caller, url)
    if copy is None:
        return None
    answer = await pages.ask_of(caller, copy, OutlinePage(), SECONDS)
    if answer is None or answer.failure:
        raise BadRequest(answer.failure if answer is not None else "This page takes too long to read.")
    return msgspec.convert(answer.content, PageOutline)


def read_fields(text: str) -> dict[str, str]:
    """Lines of `name = value`. Raises BadRequest."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = (one.strip() for one in line.partition("="))
        if not equals or not _NAME.fullmatch(name) or not value:
            raise BadRequest(f"{line[:60]!r} is no value. Write name = value, the name in lower case.")
        found[name] = value
    if not 0 < len(found) <= MOST_FIELDS:
        raise BadRequest(f"Choose at least one value, and {MOST_FIELDS} at most.")
    return found


async def recipe_here(
    project: Project, pages: PageReader, caller: Caller, url: str, fields: str, item: str = "Item"
) -> RecipeHere:
    """A recipe for records of the type `item`. Raises BadRequest."""
    values = read_fields(fields)
    copy = await _newest(project, pages, caller, url)
    if copy is None:
        raise BadRequest("This page is not in the archive.")
    others = await _others(project, pages, caller, copy)
    answer = await pages.ask_of(caller, copy, LearnRules(values, tuple(others), item), SECONDS)
    if answer is None or answer.failure:
        raise BadRequest(answer.failure if answer is not None else "These rules take too long to learn.")
    found = msgspec.convert(answer.content, LearnedHere)
    return RecipeHere(
        recipe=found.recipe,
        fields=msgspec.convert(found.fields, list[FieldByExample]),
        tried=found.tried,
        command=_command(copy.url, values),
    )


async def save_recipe(
    project: Project, pages: PageReader, caller: Caller, url: str, fields: str, name: str
) -> SavedRecipe:
    """Learn the rules again, and write them into a new file of the project's spiders. No text of a recipe is taken from
    a client, and no file is overwritten. Raises BadRequest, Misconfigured."""
    spider, file = await asyncio.to_thread(new_recipe, project.settings, url, name.strip())
    found = await recipe_here(project, pages, caller, url, fields, record_type(file.stem))
    read_recipe(found.recipe.encode(), str(file))
    await asyncio.to_thread(write_draft, file, found.recipe)
    root = project.settings.root
    shown = file.relative_to(root) if file.is_relative_to(root) else file
    return SavedRecipe(name=spider, file=shown.as_posix())


async def _newest(project: Project, pages: PageReader, caller: Caller, url: str) -> PageFacts | None:
    """The newest copy that did not fail; the newest of all if each did."""
    copies = await pages.copies(caller, public_url(project.settings, url))
    return next((one for one in reversed(copies) if not one.failure), copies[-1] if copies else None)


async def _others(project: Project, pages: PageReader, caller: Caller, copy: PageFacts) -> list[SentPage]:
    """A few pages at like addresses that the same spider fetched."""
    shape, like = address_shape(copy.url), list[PageFacts]()
    readable: dict[str, bool] = {}  # by job
    seen = 0
    async for one in project.records.archived(VisitQuery(spider=copy.spider)):
        seen += 1
        if one.url != copy.url and address_shape(one.url) == shape:
            if one.job not in readable:
                readable[one.job] = await pages.may_read(caller, one)
            if readable[one.job]:
                like.append(one)
        if seen >= MOST_VISITS or len(like) >= MOST_LIKE:
            break
    found = []
    for one in islice(like, 0, None, max(1, len(like) // MOST_OTHERS)):
        try:
            snapshot = await read_visit(project.archive, one)
        except Permanent:
            continue
        if len(snapshot.body) <= LARGEST:
            found.append(sent_page(snapshot))
        if len(found) >= MOST_OTHERS:
            break
    return found


def _command(url: str, values: dict[str, str]) -> str:
    pairs = " ".join(shlex.quote(f"{name}={value}") for name, value in values.items())
    return f"gossamer new NAME --example {shlex.quote(url)} {pairs}"
