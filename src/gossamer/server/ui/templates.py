"""Templates and their filters: numbers, times, links, parts of pages. Every displayed value passes through here.

Text from outside is shown as text. Every value is escaped, and invisible characters that would affect the page (control
characters, changes of direction) are spelled out; templates need not ask for it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ... import units
from ...clock import iso_time
from ...model.failure_groups import short_message
from ...project.jobs.jobs import JobView
from . import charts

HERE = Path(__file__).parent
CSRF = f"csrf-{secrets.token_hex(16)}"  # in rendered forms, later replaced by the user's form token; unguessable
LONGEST_TEXT = 20_000  # characters shown of one value
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class Asset(msgspec.Struct, frozen=True, kw_only=True):
    """A static file; its address changes with its content."""

    name: str
    content: bytes
    kind: str

    @property
    def address(self) -> str:
        stem, _, ending = self.name.rpartition(".")
        return f"/ui/assets/{stem}.{blake2b(self.content, digest_size=6).hexdigest()}.{ending}"


def read_assets() -> dict[str, Asset]:
    return {
        file.name: Asset(name=file.name, content=file.read_bytes(), kind=KINDS[file.suffix])
        for file in sorted((HERE / "assets").iterdir())
        if file.suffix in KINDS
    }


class Templates:
    """The templates of the dashboard, compiled once."""

    def __init__(self, assets: Mapping[str, Asset]) -> None:
        self._env = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=printable,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._env.globals.update(
            asset={name: one.address for name, one in assets.items()},
            csrf_mark=CSRF,
            link=link,
            segment=segment,
            time=time,
            number=number,
            share=share,
            span=span,
            size=size,
            many=units.many,
            outside=outside,
            after_host=after_host,
            short_message=short_message,
            lines=lines,
            chart=charts,
            counted=counted,
            job_meter=job_meter,
            time_to_go=time_to_go,
        )
        self._parts: Any = self._env.get_template("parts.html").module  # its macros are attributes
        self._env.globals["ui"] = self._parts

    def page(self, name: str, context: Mapping[str, Any]) -> str:
        return self._env.get_template(name).render(context)

    def trouble(self, words: str) -> str:
        """The message in place of a region that could not be rendered."""
        return str(self._parts.trouble(words))

    def block(self, name: str, block: str, context: Mapping[str, Any]) -> str:
        """One block of a template, without the page around it."""
        template = self._env.get_template(name)
        return "".join(template.blocks[block](template.new_context(dict(context))))


def printable(value: object) -> object:
    """The output of a template expression. `Markup` is our own HTML; anything else is text."""
    if value is None:
        return ""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    if len(value) > LONGEST_TEXT:
        value = f"{value[:LONGEST_TEXT]}…"
    return units.visible(value)


# -- links -----------------------------------------------------------------------------------------------------------


def link(path: str, **filters: object) -> str:
    """A link inside the dashboard. Empty filters are left out."""
    said = {name.rstrip("_"): value for name, value in filters.items() if value not in (None, "")}
    return f"{path}?{urlencode(said)}" if said else path


def segment(text: str) -> str:
    """A text as one part of a path."""
    return quote(text, safe="")


def after_host(url: str) -> str:
    """The URL without scheme and host, for lists that show the host in a column of its own."""
    _, slash, path = url.partition("://")[2].partition("/")
    return slash + path if slash else url


def outside(url: str | None, words: str = "") -> object:
    """A link to an external page; anything but a web address is shown as text."""
    if not url:
        return ""
    text = printable(words or url)
    if not url.startswith(("http://", "https://")):
        return text
    return Markup('<a class="outside" href="{}" rel="noreferrer noopener nofollow" target="_blank">{}</a>').format(
        url, text
    )


# -- values ----------------------------------------------------------------------------------------------------------


def time(at: str | float | None, *, empty: str = "", form: str = "") -> object:
    """A time: the script renders it in the reader's time zone, as a distance or in a `form` of charts.FORMS."""
    if at is None or at == "":
        return empty
    iso = iso_time(at) if isinstance(at, int | float) else at
    moment = datetime.fromisoformat(iso).astimezone(UTC)
    words = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    if form:
        brief = moment.strftime(charts.FORMS[form])
        return Markup('<time datetime="{}" title="{}" data-form="{}">{}</time>').format(iso, words, form, brief)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, words, words)


def number(value: float | None, *, digits: int = 0, empty: str = "–") -> str:
    return empty if value is None else f"{value:,.{digits}f}"


def share(value: float | None, *, empty: str = "–") -> str:
    """A share as a percentage; 99.97 % is not rounded up to 100 %."""
    if value is None:
        return empty
    percent = value * 100
    digits = 0 if percent in (0, 100) else 1 if 0.1 <= percent < 99.9 else 2
    return f"{min(percent, 99.99) if percent < 100 else percent:.{digits}f} %"


def span(seconds: float | None, *, empty: str = "–") -> str:
    """A duration; below a second in milliseconds."""
    return empty if seconds is None else charts.seconds(seconds)


def size(count: int | None, *, empty: str = "–") -> str:
    return empty if count is None else units.size(count)


def counted(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Choices of a filter, each with its count."""
    return [(name, f"{name} ({count:,})") for name, count in counts.items()]


def job_meter(job: JobView) -> Markup:
    """The progress bar of a job: done, given up, open."""
    parts = (
        ("done", job.done + job.unchanged, "ok"),
        ("dead", job.dead, "bad"),
        ("dropped", job.dropped, "quiet"),
        ("open", job.open, "rest"),
    )
    return charts.meter("Pages", parts)


def time_to_go(job: JobView) -> str:
    """When a job may be done: `3 min`, `+412 a minute` while it still discovers pages, or a dash."""
    return f"+{job.found_last_minute:,} a minute" if job.found_last_minute is not None else span(job.eta_seconds)


def lines(text: str) -> Markup:
    """A text of several lines as it was written."""
    return Markup("<pre>{}</pre>").format(units.visible_lines(text[:LONGEST_TEXT]))
