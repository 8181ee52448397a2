"""Which spider parses an archived page: by the name under which it was crawled, or by a file that the user names.

A spider of the project takes precedence over a built-in one of the same name. What spider files print while they are
loaded goes to standard error.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import cached_property
from pathlib import Path

from ...demo.spider import DemoShop
from ...errors import Misconfigured
from ...model.job import read_arguments
from ...parse.arguments import with_arguments
from ...parse.discovery import SpiderCatalogue, is_file_ref, list_spiders, load_spider
from ...parse.site import SiteSpider
from ...parse.spider import Spider
from ...settings import Settings

# References of built-in spiders; no name and no file starts like this.
OURS = "gossamer:"
SITE, DEMO = f"{OURS}{SiteSpider.name}", f"{OURS}{DemoShop.name}"
_OURS = {SiteSpider.name: SITE, DemoShop.name: DEMO}


def load(ref: str, settings: Settings, *, start: str = "", arguments: str = "") -> Spider:
    """The spider behind a reference, with the arguments of a job; `start` is where a crawl of a plain URL started.

    Raises SpiderNotFound, Misconfigured; BadArguments for a spider that no longer accepts them.
    """
    if ref == SITE:
        return SiteSpider([start])
    if ref == DEMO:
        return DemoShop()
    kind = _loaded(ref, settings)
    try:
        with redirect_stdout(sys.stderr):
            spider = kind()
    except Exception as error:  # a spider's own code
        raise Misconfigured(f"Spider {kind.name} cannot be created: {error_words(error)}") from error
    try:
        return with_arguments(spider, read_arguments(arguments))
    except Misconfigured as error:
        raise BadArguments(f"The page was crawled with other arguments: {error}") from error


class BadArguments(Misconfigured):
    """The spider no longer accepts the arguments of the job."""


def error_words(error: BaseException) -> str:
    """An error from user code, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


class Finder:
    """From names of spiders to references that every process understands.

    `given` is a file or a name from the user; `crawled_as` is the name under which its pages were crawled, if it was
    different. Raises SpiderNotFound, and Misconfigured for a name without a spider.
    """

    def __init__(self, settings: Settings, given: str | None = None, crawled_as: str | None = None) -> None:
        self._settings = settings
        self._given: dict[str, str] = {}
        self.named = ""  # the spider whose pages are selected; "": all
        if given is None:
            if crawled_as is not None:
                raise Misconfigured(f"--as {crawled_as} goes with --spider: which spider is to parse these pages?")
            return
        ref = self.ref(given)
        name = given
        if ref is None:
            ref = str(Path.cwd() / given) if is_file_ref(given) else given  # a path is relative to the user's folder
            name = _loaded(ref, settings).name
        self.named = crawled_as or name
        self._given[self.named] = ref

    def ref(self, name: str) -> str | None:
        """The reference of a spider; None if it is missing, and `why` says more."""
        if name in self._given:
            return self._given[name]
        found = self._called(name)
        if found:
            return name if found == 1 else None
        # A file that does not load may be the one that holds it.
        return None if self._catalogue.broken else _OURS.get(name)

    def why(self, name: str) -> str:
        """Why a spider is missing."""
        found = self._called(name)
        if found:
            return f"there are {found} spiders called {name!r}."
        broken = "".join(f" This file does not load: {file}." for file in self._catalogue.broken)
        return f"no spider {name!r} is here.{broken}"

    def _called(self, name: str) -> int:
        return sum(spec.name == name for spec in self._catalogue.spiders)

    @cached_property
    def _catalogue(self) -> SpiderCatalogue:
        with redirect_stdout(sys.stderr):
            return list_spiders(self._settings.root, self._settings.spiders)


def _loaded(ref: str, settings: Settings) -> type[Spider]:
    with redirect_stdout(sys.stderr):
        return load_spider(ref, settings.root, settings.spiders)
