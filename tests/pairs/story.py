"""A story: a site, a spider, settings, and what happens in which order; the same as a script for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from .site import Site

SPIDER = """\
from urllib.parse import urlsplit

from gossamer import Drop, Item, Request, Spider


class Thing(Item, key="sku"{on_fault}):
    sku: str
    title: str
    price: int
    rating: int


class {name}(Spider):
{attributes}
    def parse(self, page):
        for one in page.css("article"):
            sku, title, price, rating = (one.css(f"{{name}}::text").get() for name in ("i", "h2", "b", "u"))
            yield Thing(sku=sku, title=title{suffix}, price={number}, rating=int(rating))
        yield from page.follow_all("a")
{methods}"""
LOGIN = """
    async def login(self, session):
        page = await session.get("{root}/login")
        await session.submit(page.form("#login"), user="ada", password="sesame")

    def logged_out(self, page):
        return bool(page.css("form#login"))
"""

FAILED = """
    def failed(self, failure):
        yield Thing(sku="lost " + urlsplit(failure.url).path, title="Lost", price=1, rating=4)
"""


class SpiderCode(msgspec.Struct, frozen=True, kw_only=True):
    """What a spider of a story can do, beside reading things and following links."""

    start: tuple[str, ...] = ("/",)
    edition: int = 1  # from the second on, titles end with it
    drops: tuple[str, ...] = ()  # keys of things that a step of its pipeline drops
    on_fault: str = ""
    min_quality: float | None = None
    sitemaps: bool = False
    logs_in: bool = False
    searches: bool = False  # its start also sends a form
    handles: tuple[int, ...] = ()  # statuses whose pages it reads
    tells_failures: bool = False  # a page that fails gives an item
    mends: bool = False  # reads a price that is no number as 9

    def source(self, name: str, root: str) -> str:
        attributes = [f"start_urls = {[root + path for path in self.start]!r}"]
        methods = ""
        if self.drops:
            attributes.append("pipeline = (lambda item, page: Drop('unwanted') if item.sku in DROPPED else item,)")
        if self.min_quality is not None:
            attributes.append(f"min_quality = {self.min_quality}")
        if self.sitemaps:
            attributes.append("sitemaps = True")
        if self.handles:
            attributes.append(f"handle_statuses = {self.handles!r}")
        if self.logs_in:
            attributes.append("session = 'member'")
            methods += LOGIN.format(root=root)
        if self.tells_failures:
            methods += FAILED
        if self.searches:
            methods += (
                "\n    def start(self):\n        yield from self.start_urls\n"
                f"        yield Request(url={root + '/search'!r}, method='POST', form={{'q': 'all'}})\n"
            )
        text = SPIDER.format(
            name=name.capitalize(),
            number="int(price) if price.isdecimal() else 9" if self.mends else "int(price)",
            on_fault=f", on_fault={self.on_fault!r}" if self.on_fault else "",
            attributes="".join(f"    {line}\n" for line in attributes),
            suffix=f" + ' v{self.edition}'" if self.edition > 1 else "",
            methods=methods,
        )
        return text + (f"\n\nDROPPED = {self.drops!r}\n" if self.drops else "")

    def title(self, sku: str) -> str:
        """The title under which it stores a thing."""
        return f"Thing {sku} v{self.edition}" if self.edition > 1 else f"Thing {sku}"


# -- what happens ----------------------------------------------------------------------------------------------------


class PutSite(msgspec.Struct, frozen=True, tag=True):
    """The site changes."""

    site: Site


class PutSpider(msgspec.Struct, frozen=True, tag=True):
    """The file of a spider is written."""

    name: str
    code: SpiderCode


class Crawl(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`gossamer crawl SPIDER`, which may be killed when it has asked the site that often."""

    spider: str = "shop"
    limit: int | None = None
    depth: int | None = None
    rate: int | None = None  # requests a second
    processes: int = 1
    fresh: bool = False
    outputs: tuple[str, ...] = ()
    dies_at: int | None = None
    beside: str = ""  # another spider, whose crawl has begun just before
    is_watched: bool = False  # people look at the project meanwhile
    loses_store: bool = False  # the records are locked by another program for a while, longer than anybody waits

    def words(self) -> list[str]:
        flags = [
            *(("--limit", str(self.limit)) if self.limit is not None else ()),
            *(("--depth", str(self.depth)) if self.depth is not None else ()),
            *(("--rate", f"{self.rate}/s") if self.rate is not None else ()),
            *(("--processes", str(self.processes)) if self.processes > 1 else ()),
            *(("--fresh",) if self.fresh else ()),
            *(word for name in self.outputs for word in ("-o", name)),
        ]
        return ["crawl", self.spider, *flags]


# What people do while a crawl is under way. Nothing of it changes anything.
LOOKS = (
    ("status", "--json"),
    ("dead", "list"),
    ("export", "-o", "so-far.csv"),
    ("backup", "so-far.backup"),
)


class Replay(msgspec.Struct, frozen=True, tag=True):
    """`gossamer dead replay --all`; then a worker does what there is to do."""

    reason: str = ""
    fetch: bool = False

    def words(self) -> list[str]:
        chosen = ["--reason", self.reason] if self.reason else ["--all"]
        return ["dead", "replay", *chosen, *(["--fetch"] if self.fetch else [])]


class Work(msgspec.Struct, frozen=True, tag=True):
    """`gossamer worker --until-idle`"""

    def words(self) -> list[str]:
        return ["worker", "--until-idle", "--quiet"]


class Purge(msgspec.Struct, frozen=True, tag=True):
    """`gossamer dead purge --all --yes`"""

    def words(self) -> list[str]:
        return ["dead", "purge", "--all", "--yes"]


class Reparse(msgspec.Struct, frozen=True, tag=True):
    """`gossamer reparse`"""

    def words(self) -> list[str]:
        return ["reparse", "--processes", "1"]


class RunSchedule(msgspec.Struct, frozen=True, tag=True):
    """A run of a schedule of gossamer.toml over these pages; a worker does it."""

    name: str
    paths: tuple[str, ...]

    def words(self) -> list[str]:
        return ["schedule", "run", self.name]


Step: TypeAlias = PutSite | PutSpider | Crawl | Replay | Work | Purge | Reparse | RunSchedule


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """`settings` are dotted names; `is_fleet`: state on Valkey, records in PostgreSQL."""

    features: tuple[str, ...]
    settings: dict[str, Any]
    steps: tuple[Step, ...]
    is_fleet: bool = False

    def toml(self) -> str:
        return "".join(f"{name} = {_value(value)}\n" for name, value in self.settings.items())

    def script(self) -> str:
        """The story as commands for a shell. They need a checkout: run them in its folder."""
        lines = [
            "# " + " x ".join(self.features),
            'set -u; checkout=$PWD; folder=$(mktemp -d); mkdir "$folder/spiders"; cd "$folder"',
            *(["# state and records are on servers in the test: set the two addresses below"] if self.is_fleet else []),
            "cat > gossamer.toml <<'END'",
            self.toml() + "END",
        ]
        port, is_up = 0, False
        for step in self.steps:
            if isinstance(step, PutSite):
                port = step.site.port
                lines += ["cat > new.json <<'END'", _json(step.site), "END", "mv new.json site.json"]
                if not is_up:
                    lines.append(
                        '(cd "$checkout" && exec .venv/bin/python -m tests.pairs.site "$folder/site.json") & sleep 1'
                    )
                    is_up = True
            elif isinstance(step, PutSpider):
                text = step.code.source(step.name, f"http://127.0.0.1:{port}")
                lines += [f"cat > spiders/{step.name}.py <<'END'", text + "END"]
            else:
                lines += _command(step)
        return "\n".join([*lines, "kill %1", ""])


def _command(step: Crawl | Replay | Work | Purge | Reparse | RunSchedule) -> list[str]:
    command = _gossamer(step.words())
    if not isinstance(step, Crawl):
        return [f"{command}; echo exit code $?"]
    lines = [f"{_gossamer(Crawl(spider=step.beside).words())} & beside=$!; sleep 1"] if step.beside else []
    if step.is_watched:
        lines += [f"(sleep 0.5; {_gossamer(words)}) &" for words in LOOKS]
    if step.loses_store:  # gossamer gives up after 30 s; the test lowers that
        lines.append("(sleep 0.5; printf 'BEGIN EXCLUSIVE;\\n.shell sleep 40\\n' | sqlite3 gossamer-data/records.db) &")
    if step.dies_at is None:
        lines.append(f"{command}; echo exit code $?")
    else:
        lines += [
            "before=$(cat site.log 2>/dev/null | wc -l)",
            f"setsid {command} & crawl=$!",
            f"until [ $(cat site.log | wc -l) -ge $((before + {step.dies_at})) ]; do sleep 0.01; done",
            "kill -9 -- -$crawl; wait $crawl",
        ]
    return [*lines, "wait $beside"] if step.beside else lines


def _gossamer(words: Sequence[str]) -> str:
    return f'"$checkout/.venv/bin/gossamer" {shlex.join(words)}'


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_value(one)}" for name, one in value.items()) + "}"
    return msgspec.json.encode(value).decode()


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
