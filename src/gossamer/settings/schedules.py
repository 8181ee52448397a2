"""[schedules.NAME]: what is scraped again and again, or once at a moment. schedule/definition.py checks the whole."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..units import Size


class ScheduleTable(msgspec.Struct, frozen=True, kw_only=True):
    """As the user writes it. None means: not written. Exactly one of `every`, `cron` and `at` is needed."""

    spider: str = ""  # the name of a spider or a recipe, or a URL: a whole site

    # When
    every: str | None = None  # "6h"
    cron: str | None = None  # "0 3 * * *"
    at: str | None = None  # "2027-01-31T12:00"; TOML's own dates do as well
    zone: str = "UTC"  # of cron, of moments without an offset, and of windows that name none
    windows: str = ""  # when its pages may be fetched: "22:00-06:00 Europe/Berlin"
    overlap: str = "skip"  # or "queue", "replace": when the run before is still going

    # What: the keys of schedule/sources; none of them: the spider's own start
    urls: tuple[str, ...] | str | None = None
    file: str | None = None
    command: tuple[str, ...] | str | None = None
    sitemap: str | None = None
    feed: str | None = None
    start: bool | None = None
    format: str | None = None
    column: str | None = None
    shell: bool | None = None
    timeout: timedelta | None = None
    max_output: Size | None = None
    only_changed: bool | None = None
    max_urls: int | None = None

    # How
    kind: str = ""  # the callback for addresses of the source; empty: parse
    priority: int = 0  # of these addresses
    min_age: timedelta | None = None  # a page that was fetched less than this ago is left out
    limit: int | None = None  # pages of each run
    budget: int | None = None  # fetches a day, spent where pages change most
    min_interval: timedelta | None = None  # between two fetches of one page, with a budget
    max_interval: timedelta | None = None
