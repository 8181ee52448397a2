"""Schedules written over HTTP: as `gossamer schedule add`, without what only the owner of the machine may set.

No command, no file, no spider by its path; no private address. How it fails: BadRequest, Misconfigured.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ...errors import Misconfigured, SpiderNotFound
from ...settings import ScheduleTable
from ...units import parse_rate
from ..jobs.api_jobs import NAMES, check_catalogue_name, public_url
from ..jobs.api_requests import Address, BadRequest, Name
from ..open import Project
from .changes import ScheduleAdded, add_schedule, new_schedule

Seconds = Annotated[float, Meta(gt=0, le=100 * 366 * 86400)]


class ScheduleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    rate: Annotated[str, Meta(min_length=1, max_length=50)] | None = None  # of each site, if slower
    site_concurrency: Annotated[int, Meta(ge=1, le=10_000)] | None = None  # requests at once at one site, if fewer
    min_age: Seconds | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    budget: Annotated[int, Meta(ge=1)] | None = None
    min_interval: Seconds | None = None
    max_interval: Seconds | None = None
    min_records: Annotated[int, Meta(ge=0)] | None = None  # expected of each run, as in [expect]
    min_pages: Annotated[int, Meta(ge=0)] | None = None
    max_dead_share: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_change: Annotated[float, Meta(ge=0)] | None = None
    replace: bool = False  # change the schedule of that name


_OF_TABLE = frozenset(ScheduleTable.__struct_fields__)


async def write_schedule(project: Project, wanted: ScheduleRequest) -> ScheduleAdded:
    """Add a schedule, or replace one. Raises BadRequest, Misconfigured."""
    settings = project.settings
    if "/" in wanted.name:
        raise BadRequest(f"{wanted.name!r} has a slash, so no URL of the API could name it. Choose another name.")
    addresses = [*(wanted.urls or ()), *(one for one in (wanted.sitemap, wanted.feed) if one is not None)]
    if "://" in wanted.spider:
        addresses.append(wanted.spider)
    else:
        check_catalogue_name(wanted.spider)
    if addresses and settings.fetch.allow_private:
        # Its runs are the project's own and may go where the settings allow: a redirect could lead them to private
        # hosts.
        raise BadRequest("This project may visit private addresses: add schedules with addresses on the command line.")
    for address in addresses:
        head, brace, _ = address.partition("{")
        if brace and head.count("/") < 3:
            raise BadRequest(f"{address}: braces are allowed in the path of an address, not in its host.")
        public_url(settings, address.replace("{", "").replace("}", ""))
    alike = {name: getattr(wanted, name) for name in wanted.__struct_fields__ if name in _OF_TABLE}
    spans = {name: _span(getattr(wanted, name)) for name in ("min_age", "min_interval", "max_interval")}
    urls = tuple(wanted.urls) if wanted.urls is not None else None
    try:
        rate = parse_rate(wanted.rate) if wanted.rate is not None else None
    except ValueError as error:
        raise BadRequest(f"rate: {error}.") from error
    table = ScheduleTable(
        **alike | spans | {"rate": rate, "urls": urls, "only_changed": True if wanted.only_changed else None}
    )
    try:
        new = await asyncio.to_thread(new_schedule, settings, wanted.name, table)  # reads the spider's file
    except SpiderNotFound as error:  # its message names folders of this machine
        raise BadRequest(f"There is no spider or recipe {wanted.spider!r} that loads. {NAMES}") from error
    except Misconfigured:
        raise
    except Exception as error:  # a spider's own code may raise anything
        raise BadRequest(f"The spider {wanted.spider!r} does not load.") from error
    return await add_schedule(project, new, replace=wanted.replace)


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
