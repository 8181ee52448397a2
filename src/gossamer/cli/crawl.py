"""`gossamer crawl`: a spider by name or file, a recipe, or just a URL. The crawl itself is in crawling.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidUrl, Misconfigured
from ..model.url import parse_url
from ..parse.discovery import is_file_ref, load_spider
from ..parse.site import SiteSpider
from ..parse.spider import Spider
from ..settings import Settings
from ..settings.effective import local_hosts
from .app import app, err, fail, settings_with

REPLACED, CANCELLED = "replaced", "cancelled"


@app.command("crawl")
def crawl_verb(
    target: Annotated[
        str, typer.Argument(help="A spider's name, a file (spider.py, spider.py:Class, recipe.toml), or a URL.")
    ],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", help="Write the records here: .jsonl, .csv or .parquet; also s3://bucket/file."),
    ] = None,
    depth: Annotated[int | None, typer.Option(min=0, help="Follow links this many steps from the start.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many pages.")] = None,
    rate: Annotated[str | None, typer.Option(help="Requests per site: 5/s, 30/m or unlimited.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Pages in flight at once in this process.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of going on.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="One JSON object per event, to stderr.")] = False,
) -> None:
    """Crawl. The same command again goes on where it was; in a second terminal it shares the work."""
    flags = {
        "crawl.depth": depth,
        "crawl.limit": limit,
        "politeness.rate": rate,
        "crawl.concurrency": concurrency,
    }
    settings = settings_with(**flags)
    spider, name, settings = resolve(target, settings, flags)
    from .crawling import run_crawl  # loads what fetches: whoever mistyped something is told sooner

    report = run_crawl(
        spider,
        settings,
        name=name,
        output=output,
        fresh=fresh,
        quiet=quiet,
        json_logs=json_logs,
        command=f"gossamer crawl {target}",
    )
    if report.failure:
        fail(f"Not one page could be had. {report.failure}")
    if not report.ended or report.job.ending in (REPLACED, CANCELLED):
        raise typer.Exit(130)


def resolve(target: str, settings: Settings, flags: dict[str, Any]) -> tuple[Spider, str | None, Settings]:
    """The spider that the user means, the job's name, and the settings with local hosts allowed."""
    if not looks_like_url(target):
        spider = load_spider(target, _folder_for(target, settings), settings.spiders)()
        return spider, None, allow_local(settings, list(spider.start_urls), flags)
    try:
        url = parse_url(target)
    except InvalidUrl as error:
        raise Misconfigured(
            f"{error} A spider's name, a .py file, a recipe or an http(s) URL can be crawled."
        ) from error
    if "@" in authority_with_user(url):
        raise Misconfigured("The address holds a user name or password, and would be shown and stored. Leave it out.")
    return SiteSpider([url]), url, allow_local(settings, [url], flags)


def authority_with_user(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


def looks_like_url(target: str) -> bool:
    return "://" in target or target.partition(":")[0].lower() in ("javascript", "data", "mailto", "file")


def _folder_for(target: str, settings: Settings) -> Path:
    """A path is meant from the working directory, a name from the project."""
    return Path.cwd() if is_file_ref(target) else settings.root


def allow_local(settings: Settings, urls: list[str], flags: dict[str, Any]) -> Settings:
    """A local host that the user typed may be visited, and is named; others stay refused."""
    if settings.fetch.allow_private:
        return settings
    hosts = [host for host in local_hosts(urls) if host not in settings.fetch.allow_hosts]
    if not hosts:
        return settings
    err.print(f"[dim]Private address: {', '.join(hosts)} is allowed, because you named it; all others are refused.[/]")
    return settings_with(**flags, **{"fetch.allow_hosts": [*settings.fetch.allow_hosts, *hosts]})
