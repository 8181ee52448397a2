"""The view that makes a recipe by example: the texts of an archived page as a plain list, values chosen from it, and
the recipe that finds them. Nothing of the site's markup is sent."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...project.access.keys import ADMIN, JOBS, SCRAPE
from ...project.pages.outline import page_outline, recipe_here, save_recipe
from .templates import link
from .view import Context, Done, FormAction, ShownOnce, View, Visit

Address = Annotated[str, Meta(max_length=2083)]
Lines = Annotated[str, Meta(max_length=10_000)]  # name = value


class OutlineFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The page, and what was chosen on it, in the address: a link to it shows the same."""

    url: Address = ""
    fields: Lines = ""


class OutlineForm(msgspec.Struct, frozen=True, kw_only=True):
    """The page, what was chosen on it, and what is chosen now."""

    url: Address
    fields: Lines = ""
    take: Annotated[str, Meta(max_length=1000)] = ""  # a line more


class SaveForm(msgspec.Struct, frozen=True, kw_only=True):
    """The page, what was chosen on it, and the name of the new recipe; "" for that of the site."""

    url: Address
    fields: Lines
    name: Annotated[str, Meta(max_length=100)] = ""


async def outline(visit: Visit) -> Context:
    url = visit.of(OutlineFilters).url
    return {"found": await page_outline(visit.project, visit.pages, visit.caller, url) if url else None}


async def take(visit: Visit) -> Done:
    form = visit.of(OutlineForm)
    lines = [line.strip() for line in form.fields.splitlines() if line.strip()]
    if form.take and form.take not in lines:
        lines.append(_with_free_name(form.take, lines))
    return Done(words=f"Took {lines[-1][:60]}" if lines else "", to=_address(form.url, lines))


def _with_free_name(line: str, lines: list[str]) -> str:
    name, _, value = line.partition(" = ")
    taken = {one.partition("=")[0].strip() for one in lines}
    free = next(one for one in (name, *(f"{name}_{number}" for number in range(2, len(lines) + 3))) if one not in taken)
    return f"{free} = {value}"


def _address(url: str, lines: list[str]) -> str:
    return link("/ui/outline", url=url, fields="\n".join(lines))


async def learn(visit: Visit) -> ShownOnce:
    form = visit.of(OutlineForm)
    found = await recipe_here(visit.project, visit.pages, visit.caller, form.url, form.fields)
    values = {
        "found": found,
        "url": form.url,
        "fields": form.fields,
        "back": _address(form.url, form.fields.splitlines()),
    }
    return ShownOnce(title="A recipe by example", template="outline_recipe.html", values=values, target=form.url)


async def save(visit: Visit) -> Done:
    form = visit.of(SaveForm)
    saved = await save_recipe(visit.project, visit.pages, visit.caller, form.url, form.fields, form.name)
    words = f"Wrote {saved.file}. Run {saved.name} here; workers on other machines need the file too."
    return Done(words=words, to=link("/ui/spiders", q=saved.name), target=saved.name)


VIEWS = (
    View("/ui/outline", "By example", "outline.html", {"outline": outline}, JOBS, query=OutlineFilters,
         or_scope=SCRAPE, group="Inspect", live=False),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/outline/take", handler=take, form=OutlineForm, scope=JOBS, or_scope=SCRAPE, changes=False),
    FormAction(path="/ui/outline/learn", handler=learn, form=OutlineForm, scope=JOBS, or_scope=SCRAPE, changes=False),
    FormAction(path="/ui/outline/save", handler=save, form=SaveForm, scope=ADMIN, for_admins=True),
)
