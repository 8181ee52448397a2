"""Schedules that are written over HTTP: as `gossamer schedule add`, without what only the owner of the machine may say.

No command, no file, no spider by its path; no private address. How it fails: BadWish, Misconfigured.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ..errors import Misconfigured, SpiderNotFound
from ..settings import ScheduleTable
from .open import Project
from .schedule_changes import ScheduleAdded, add_schedule, new_schedule
from .wire_jobs import NAMES, Address, BadWish, Name, check_catalogue_name, public_url

Seconds = Annotated[float, Meta(gt=0, le=100 * 366 * 86400)]


class ScheduleWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule, as in gossamer.toml. Exactly one of `every`, `cron` and `at` is needed; durations are seconds."""

    name: Name
    spider: Annotated[str, Meta(min_length=1, max_length=2083)]  # of the catalogue, or the URL of a site
    every: Annotated[str, Meta(max_length=100)] | None = None
    cron: Annotated[str, Meta(max_length=200)] | None = None
    at: Annotated[str, Meta(max_length=100)] | None = None
    zone: Annotated[str, Meta(max_length=100)] = "UTC"
    windows: Annotated[str, Meta(max_length=1000)] = ""
    overlap: Literal["skip", "queue", "replace"] = "skip"
    urls: Annotated[list[Address], Meta(max_length=1000)] | None = None
    sitemap: Address | None = None
    feed: Address | None = None
    only_changed: bool = False
    max_urls: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    kind: Annotated[str, Meta(max_length=100)] = ""
    arguments: Annotated[tuple[Annotated[str, Meta(max_length=1000)], ...], Meta(max_length=100)] = ()
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    min_age: Seconds | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    budget: Annotated[int, Meta(ge=1)] | None = None
    min_interval: Seconds | None = None
    max_interval: Seconds | None = None
    min_records: Annotated[int, Meta(ge=0)] | None = None  # what a run must come to, as in [expect]
    min_pages: Annotated[int, Meta(ge=0)] | None = None
    max_dead_share: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_change: Annotated[float, Meta(ge=0)] | None = None
    replace: bool = False  # change the one of that name


async def write_schedule(project: Project, wish: ScheduleWish) -> ScheduleAdded:
    """Add a schedule, or replace one. Raises BadWish, Misconfigured."""
    settings = project.settings
    if "/" in wish.name:
        raise BadWish(f"{wish.name!r} has a slash, so no address would lead to it. Choose another name.")
    addresses = [*(wish.urls or ()), *(one for one in (wish.sitemap, wish.feed) if one is not None)]
    if "://" in wish.spider:
        addresses.append(wish.spider)
    else:
        check_catalogue_name(wish.spider)
    if addresses and settings.fetch.allow_private:
        # Its runs are the project's own: they may go where the settings say, so a redirect could lead them inside.
        raise BadWish("This project may visit private addresses: add schedules with addresses on the command line.")
    for address in addresses:
        head, brace, _ = address.partition("{")
        if brace and head.count("/") < 3:
            raise BadWish(f"{address}: braces may stand in the path of an address, not in its host.")
        public_url(settings, address.replace("{", "").replace("}", ""))
    table = ScheduleTable(
        spider=wish.spider,
        every=wish.every,
        cron=wish.cron,
        at=wish.at,
        zone=wish.zone,
        windows=wish.windows,
        overlap=wish.overlap,
        urls=tuple(wish.urls) if wish.urls is not None else None,
        sitemap=wish.sitemap,
        feed=wish.feed,
        only_changed=True if wish.only_changed else None,
        max_urls=wish.max_urls,
        kind=wish.kind,
        priority=wish.priority,
        min_age=_span(wish.min_age),
        limit=wish.limit,
        budget=wish.budget,
        min_interval=_span(wish.min_interval),
        max_interval=_span(wish.max_interval),
        arguments=tuple(wish.arguments),
        min_records=wish.min_records,
        min_pages=wish.min_pages,
        max_dead_share=wish.max_dead_share,
        max_change=wish.max_change,
    )
    try:
        new = await asyncio.to_thread(new_schedule, settings, wish.name, table)  # the spider's file is read
    except SpiderNotFound as error:  # which tells of the folders of this machine
        raise BadWish(f"There is no spider or recipe {wish.spider!r} that loads. {NAMES}") from error
    except Misconfigured:
        raise
    except Exception as error:  # a spider's own code may raise anything
        raise BadWish(f"The spider {wish.spider!r} does not load.") from error
    return await add_schedule(project, new, replace=wish.replace)


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
