"""Drafting a recipe from a page: what `gossamer new --recipe URL` does. At most four requests, at the site's pace."""

from __future__ import annotations

import re
from pathlib import Path

from rich.text import Text

from ..clock import SystemClock
from ..errors import FetchFailed, FetchRefused, Misconfigured
from ..model.url import host_of, site_of
from ..parse.discovery import RECIPE_ENDINGS
from ..parse.media import Media
from ..parse.page import Page
from ..parse.recipe.draft import RecipeDraft, detail_links, draft_recipe
from ..parse.spider import composed, is_spider_name
from ..project.fetch import fetch_one
from ..settings import FILE_NAME, Settings
from ..text import visible
from .app import err, out, run_async
from .web import settings_for

LONGEST_PAUSE = 5.0  # seconds between two requests; a person waits


def new_recipe(url: str, name: str | None) -> None:
    """Fetch the page, and one behind it; write the recipe; say what to do next. Nothing is overwritten."""
    settings = settings_for(url)
    name = _checked_name(name or _name_for(url))
    file = _place(settings, name)
    shown = str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)
    ref = name if _is_project(settings) else shown
    draft = run_async(_drafted(url, settings, ref))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(draft.text)
    except FileExistsError:
        raise _taken(file) from None
    except OSError as error:
        raise Misconfigured(
            f"{file} cannot be written ({error.strerror}). Go to a folder that you may write to."
        ) from error
    out.print(Text.assemble("Wrote ", (visible(shown), "bold"), f": {draft.summary}. Next:"))
    for command in (f"gossamer check {ref} {visible(url)}", f"gossamer crawl {ref} --limit 50 -o {name}.jsonl"):
        out.print(Text(f"  {command}", style="cyan"))


def _name_for(url: str) -> str:
    """`https://www.book-shop.example/` is book-shop; a host without a registrable domain gives its first word."""
    site = site_of(url)
    host = site if "." in site and not site.endswith(".localhost") else host_of(url)
    return re.sub(r"[^a-z0-9]+", "-", host.removeprefix("www.").partition(".")[0].lower()).strip("-") or "site"


def _checked_name(name: str) -> str:
    name = composed(name)
    if not is_spider_name(name):
        raise Misconfigured(f"{name[:80]!a} cannot be a recipe's name. Use letters, digits, - and _, as in book-shop.")
    return name


def _place(settings: Settings, name: str) -> Path:
    """In the project's spiders folder; outside of a project, here. Raises Misconfigured when the name is taken."""
    folder = settings.root / settings.spiders if _is_project(settings) else Path.cwd()
    for ending in RECIPE_ENDINGS:
        if (folder / f"{name}{ending}").exists():
            raise _taken(folder / f"{name}{ending}")
    return folder / f"{name}.toml"


def _is_project(settings: Settings) -> bool:
    return (settings.root / FILE_NAME).is_file()


def _taken(file: Path) -> Misconfigured:
    return Misconfigured(
        f"{file} exists already and was not changed. Give the recipe another name: gossamer new NAME ..."
    )


async def _drafted(url: str, settings: Settings, ref: str) -> RecipeDraft:
    first = await _fetched(url, settings)
    if first.status >= 400:
        raise FetchRefused(
            f"{first.url} answered {first.status}; a recipe cannot be drafted from it.", status=first.status
        )
    if first.media is not Media.HTML:
        raise Misconfigured(f"{first.url} is {first.content_type or 'no HTML'}; drafts are made from HTML pages.")
    clock = SystemClock()
    interval = settings.politeness.rate.interval
    detail = None
    for link in detail_links(first):
        await clock.sleep(min(interval.total_seconds(), LONGEST_PAUSE) if interval is not None else 0.0)
        err.print(Text(f"Looking at {visible(link)}", "dim"))
        detail = await _looked_at(link, settings)
        if detail is not None:
            break
    return draft_recipe(first, detail, ref)


async def _looked_at(url: str, settings: Settings) -> Page | None:
    """A page behind the first one; None when it cannot be had or is no HTML."""
    try:
        page = await _fetched(url, settings)
    except (FetchFailed, FetchRefused) as error:
        err.print(Text(f"  {visible(str(error))}", "yellow"))
        return None
    return page if page.status < 400 and page.media is Media.HTML else None


async def _fetched(url: str, settings: Settings) -> Page:
    return Page((await fetch_one(url, settings, robots=settings.politeness.robots)).snapshot)
