"""Creates a new project: its folder with settings and a first spider that runs."""

from __future__ import annotations

import json
import keyword
import re
from pathlib import Path

import msgspec

from ...errors import Misconfigured
from ...parse.spider import default_name
from ...terms import local_hosts
from ...units import visible

EXAMPLE_URL = "https://books.toscrape.com/"  # a shop that exists to be scraped

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)*")
_TAKEN = frozenset({"Spider", "Item", "Page", "Money", "Results", "Request", "SitePage", "Book"})


class Names(msgspec.Struct, frozen=True):
    """A name in its four forms: `book-shop`, `book_shop`, `BookShop`, and what `gossamer crawl` calls it."""

    folder: str
    module: str
    class_name: str
    spider: str


def new_project(parent: Path, name: str, start: str | None) -> Names:
    """Create the project's folder in `parent`, with a spider that starts at `start`. Nothing is overwritten.

    Raises Misconfigured.
    """
    names = check_name(name)
    folder = parent / names.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Misconfigured(f"{folder} exists already and nothing in it was changed. Choose another name.")
    write_new(folder, files_of(names, start))
    return names


def write_new(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write these files, by their paths in `folder`, and return them. Raises Misconfigured, before anything is written,
    if one of them exists."""
    wanted = {folder / path: text for path, text in texts.items()}
    if there := next((file for file in wanted if file.exists()), None):
        raise Misconfigured(f"{there} exists already, and nothing was changed. Move it away first.")
    try:
        for file, text in wanted.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as stream:
                stream.write(text)
            if text.startswith("#!"):
                file.chmod(0o755)
    except OSError as error:
        raise Misconfigured(
            f"Files cannot be created in {folder} ({error.strerror}). Go to a folder that you may write to."
        ) from error
    return list(wanted)


def check_name(name: str) -> Names:
    """The forms of a project's name. Raises Misconfigured for a name that cannot be a spider's."""
    if not _NAME.fullmatch(name) or len(name) > 60:
        raise Misconfigured(
            f"{visible(name[:80])!r} cannot be the name of a project or spider. Begin with a letter from a to z, and"
            " use such letters, digits, - and _, as in book-shop."
        )
    module = name.replace("-", "_")
    words = re.split(r"[_-]", name)
    class_name = "".join(word[0].upper() + word[1:] for word in words)
    if class_name in _TAKEN or keyword.iskeyword(class_name):
        raise Misconfigured(
            f"{name!r} would hide a name of Python or Gossamer. Call it after what you crawl: {name}-shop."
        )
    return Names(name, module, class_name, default_name(class_name))


def files_of(names: Names, start: str | None) -> dict[str, str]:
    """Path in the project -> its text. Without a `start`, the spider crawls a shop made for practice."""
    spider = SITE_SPIDER if start is not None else SHOP_SPIDER
    return {
        "gossamer.toml": TOML.format(names=names, hosts=_allowed(start)),
        f"spiders/{names.module}.py": spider.format(names=names, url=json.dumps(start or EXAMPLE_URL)),
        "README.md": README.format(names=names, url=start or EXAMPLE_URL),
        ".gitignore": "gossamer-data/\n__pycache__/\n",
    }


def _allowed(start: str | None) -> str:
    """A local site may be crawled if the user names it; the project's settings record that."""
    hosts = local_hosts([start]) if start is not None else []
    return (
        f"allow_hosts = {json.dumps(hosts)}   # a private address: refused unless it is named here\n" if hosts else ""
    )


TOML = """\
# Settings of {names.folder}. `gossamer settings` shows all of them, with their values and origins.

# For a fleet. These lines stay above the first [table]:
# project = "{names.folder}"
# state = "redis://localhost:6379/0"
# records = "postgresql://localhost/crawls"

[politeness]
rate = "2/s"        # requests per site; robots.txt is obeyed as well
# concurrency = 4   # requests at once per site

[fetch]
{hosts}# Tell sites who you are and where they can reach you:
# user_agent = "{names.folder}/1.0 (+https://example.com/bot)"

# Settings for one site:
# [domains."slow.example"]
# rate = "10/m"
"""

SHOP_SPIDER = '''\
"""{names.class_name}: every book of a shop that exists to be scraped. Try selectors with `gossamer shell URL`."""

from __future__ import annotations

from gossamer import Item, Money, Page, Results, Spider


class Book(Item, key="url"):
    """One record. A field without a default is required: a page that lacks it becomes a dead letter."""

    title: str
    price: Money | None = None
    in_stock: bool = False


class {names.class_name}(Spider):
    """Listings lead to books and to the next listing."""

    start_urls = [{url}]

    def parse(self, page: Page) -> Results:
        """A listing: its books first, then the next page, which is parsed like this one."""
        for link in page.css("article h3 a"):
            yield page.follow(link, self.book, priority=8)
        yield from page.follow_all("li.next a")

    def book(self, page: Page) -> Results:
        yield Book(
            url=page.url,
            title=page.css("h1::text").get(),
            price=Money.parse(page.css("p.price_color::text").get()),
            in_stock="In stock" in page.css("p.availability").text,
        )
'''

SITE_SPIDER = '''\
"""{names.class_name}: a record for every page. Try selectors with `gossamer shell URL`, then make it yours."""

from __future__ import annotations

from gossamer import Item, Page, Results, Spider


class SitePage(Item, key="url"):
    """One record. A field without a default is required: a page that lacks it becomes a dead letter."""

    title: str | None
    headline: str | None = None
    text: str = ""


class {names.class_name}(Spider):
    """Every page that links lead to; other sites are left alone."""

    start_urls = [{url}]

    def parse(self, page: Page) -> Results:
        """Called with every page: yield items to keep, and links to follow."""
        yield SitePage(
            url=page.url,
            title=page.title,
            headline=page.css("h1").text or None,
            text=page.main_text(),
        )
        yield from page.follow_all("a")
'''

README = """\
# {names.folder}

A Gossamer project that crawls {url}

    gossamer crawl {names.spider} -o {names.module}.jsonl  # Ctrl-C stops; the same command continues
    gossamer status  # where it stands
    gossamer dead list  # pages that failed, and why
    gossamer export -o {names.module}.csv  # all records as a table

- `spiders/{names.module}.py` defines what is collected. `gossamer shell {url}` lets you try selectors.
- `gossamer.toml` holds the settings; `gossamer settings` lists all of them.
- `gossamer-data/` is created by the first crawl: queue, records and raw pages.
"""
