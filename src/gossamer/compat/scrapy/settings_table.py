"""Scrapy's settings in our terms: which become attributes of the spider, which settings of the job, and which have no
effect.

Only settings of the project itself count, in settings.py or custom_settings: otherwise our defaults apply, even where
Scrapy's differ. gossamer.toml, the environment and the command line take precedence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec
import scrapy
from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.settings import Settings as ScrapySettings

from ...settings import Settings
from ...units import Rate, Size
from .components import unfit_parts
from .declarations import declared

KEYS = "GOSSAMER_ITEM_KEYS"  # the fields that identify an item: a name, a list, or a dict by class
SESSION = "GOSSAMER_SESSION"  # the name of the session of all requests; False: none

# Settings of the job: our key, and how its value is derived.
JOB_SETTINGS: dict[str, tuple[str, Callable[[ScrapySettings, str], Any]]] = {
    "CONCURRENT_REQUESTS": ("crawl.concurrency", lambda s, name: max(s.getint(name), 1)),
    "DOWNLOAD_TIMEOUT": ("fetch.total_timeout", lambda s, name: timedelta(seconds=s.getfloat(name))),
    "DOWNLOAD_MAXSIZE": ("fetch.max_body", lambda s, name: Size(s.getint(name) or 2**31)),
    "REDIRECT_MAX_TIMES": ("fetch.max_redirects", lambda s, name: s.getint(name)),
    "RETRY_HTTP_CODES": ("retry.statuses", lambda s, name: tuple(int(code) for code in s.getlist(name))),
    "URLLENGTH_LIMIT": ("crawl.max_url_length", lambda s, name: s.getint(name) or 2**31),
    "USER_AGENT": ("fetch.user_agent", lambda s, name: str(s.get(name))),
}

# Settings without effect, and what to use instead.
IGNORED = {
    "AUTOTHROTTLE_ENABLED": "The pace is DOWNLOAD_DELAY, else politeness.rate; Retry-After and 429 slow a site down.",
    "DEPTH_PRIORITY": "Give requests a priority.",
    "DOWNLOAD_HANDLERS": "Write a transport of your own, and a route with it: see docs/extensions.md.",
    "DOWNLOAD_SLOTS": 'Write [domains."..."] tables with rate and concurrency.',
    "DUPEFILTER_CLASS": "The queue knows every URL of the job; [urls] says which are the same.",
    "HTTPCACHE_ENABLED": "Pages are in the archive; `gossamer crawl NAME --replay` reads from there.",
    "JOBDIR": "Every crawl can be stopped and goes on.",
    "LOG_FILE": "`gossamer crawl --json-logs` writes to stderr.",
    "SCHEDULER": "The queue of the project takes its place.",
    "SCHEDULER_DISK_QUEUE": "The queue of the project takes its place.",
    "SCHEDULER_MEMORY_QUEUE": "The queue of the project takes its place.",
    "STATS_CLASS": "Stats are those of the job: `gossamer job show`.",
}


# Packages whose keys in meta become routes (requests.py).
KNOWN_HANDLERS = ("scrapy_playwright.", "scrapy_impersonate.", "scrapy_zyte_api.")


def is_set(settings: ScrapySettings, name: str) -> bool:
    """Does the project itself set it?"""
    return (settings.getpriority(name) or 0) > SETTINGS_PRIORITIES["default"] and settings.get(name) is not None


def attributes_of(cls: type[scrapy.Spider], settings: ScrapySettings) -> dict[str, Any]:
    """Attributes of our spider."""
    found: dict[str, Any] = {}
    delay = declared(cls, "download_delay")
    if delay is not None or is_set(settings, "DOWNLOAD_DELAY"):
        seconds = float(delay) if delay is not None else settings.getfloat("DOWNLOAD_DELAY")
        found["rate"] = str(Rate(timedelta(seconds=max(seconds, 0)) or None))
    if is_set(settings, "CONCURRENT_REQUESTS_PER_DOMAIN"):
        found["concurrency"] = max(settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN"), 1)
    if is_set(settings, "ROBOTSTXT_OBEY"):
        found["robots"] = settings.getbool("ROBOTSTXT_OBEY")
    if settings.getint("DEPTH_LIMIT"):
        found["max_depth"] = settings.getint("DEPTH_LIMIT")
    if settings.getint("CLOSESPIDER_PAGECOUNT"):
        found["limit"] = settings.getint("CLOSESPIDER_PAGECOUNT")
    found["retry_unsafe"] = settings.getbool("RETRY_ENABLED")  # Scrapy repeats a POST like any request
    if is_set(settings, "RETRY_ENABLED") and not settings.getbool("RETRY_ENABLED"):
        found["max_attempts"] = 1
    elif is_set(settings, "RETRY_TIMES"):
        found["max_attempts"] = max(settings.getint("RETRY_TIMES"), 0) + 1
    if is_set(settings, "DEFAULT_REQUEST_HEADERS"):
        headers = settings.getdict("DEFAULT_REQUEST_HEADERS")
        found["headers"] = {name: str(value) for name, value in headers.items() if value is not None}
    return found


def adjusted(ours: Settings, settings: ScrapySettings) -> Settings:
    """Our settings, with Scrapy's for the job where ours are not set."""
    for name, (key, made) in JOB_SETTINGS.items():
        if key in ours.origins or not is_set(settings, name):
            continue
        table, _, field = key.partition(".")
        part = msgspec.structs.replace(getattr(ours, table), **{field: made(settings, name)})
        origins = {**ours.origins, key: f"Scrapy's {name}"}
        ours = msgspec.structs.replace(ours, **{table: part, "origins": origins})
    return ours


def remarks_of(settings: ScrapySettings) -> list[str]:
    """One sentence for each setting and component of the project that has no effect."""
    told = [
        f"Scrapy setting {name} has no effect. {advice}"
        for name, advice in IGNORED.items()
        if is_set(settings, name)
        and settings.get(name)
        and not _is_off(settings, name)
        and not _is_known(settings, name)
    ]
    return told + [f"{name} {why}." for name, why in unfit_parts(settings).items()]


def _is_known(settings: ScrapySettings, name: str) -> bool:
    """Are all of these download handlers some whose keys in meta we read?"""
    if name != "DOWNLOAD_HANDLERS":
        return False
    listed = [str(one) for one in settings.getdict(name).values() if one is not None]
    return all(one.startswith(KNOWN_HANDLERS) for one in listed)


def _is_off(settings: ScrapySettings, name: str) -> bool:
    return name.endswith("_ENABLED") and not settings.getbool(name)


def item_key_fields(settings: ScrapySettings, kind: str) -> tuple[str, ...]:
    """The fields that GOSSAMER_ITEM_KEYS names for items of a class; none: by the page."""
    named: Any = settings.get(KEYS)
    if isinstance(named, Mapping):
        named = named.get(kind)
    if not named:
        return ()
    return tuple(re.split(r"[,\s]+", named.strip())) if isinstance(named, str) else tuple(map(str, named))
