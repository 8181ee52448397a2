"""Which spider parses an archived page: by the name under which it was crawled, or by a file that the user names."""

from __future__ import annotations

from pathlib import Path

from ..demo.spider import DemoShop
from ..errors import SpiderNotFound
from ..parse.discovery import load_spider
from ..parse.site import SiteSpider
from ..parse.spider import Spider
from ..settings import Settings


def load(ref: str, settings: Settings, *, start: str = "") -> Spider:
    """The spider behind a reference; `start` is where a crawl of a mere URL began. Raises SpiderNotFound."""
    if ref == SiteSpider.name and start:
        return SiteSpider([start])
    if ref == DemoShop.name:
        return DemoShop()
    return load_spider(ref, settings.root, settings.spiders)()


class Finder:
    """From the names of spiders to references that every process understands. `file` is one that the user named."""

    def __init__(self, settings: Settings, file: str | None = None) -> None:
        self._settings = settings
        self._known: dict[str, str | None] = {SiteSpider.name: SiteSpider.name, DemoShop.name: DemoShop.name}
        self.named = ""  # what the user's file or name is called
        if file is not None:
            ref = self._absolute(file)
            self.named = file if file in self._known else load_spider(ref, settings.root, settings.spiders).name
            self._known.setdefault(self.named, ref)

    def _absolute(self, ref: str) -> str:
        """A path is meant from the working directory, a name from the project."""
        file, colon, name = ref.partition(":")
        return f"{Path.cwd() / file}{colon}{name}" if "." in file else ref

    def ref(self, name: str) -> str | None:
        """The reference of a spider; None when it is not here."""
        if name not in self._known:
            try:
                load_spider(name, self._settings.root, self._settings.spiders)
                self._known[name] = name
            except SpiderNotFound:
                self._known[name] = None
        return self._known[name]
