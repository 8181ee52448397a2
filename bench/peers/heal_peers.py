"""Scrapling and AutoScraper on one redesigned site, in their own Python: reads JSON from standard input (pages before
and after, selectors and texts of known values) and writes the text that each finds per page and field."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def scrapling(site: dict[str, Any]) -> list[dict[str, str | None]]:
    """The selectors of the old layout, saved on an old page and relocated on every new one."""
    from scrapling.parser import Selector

    found: list[dict[str, str | None]] = []
    with tempfile.TemporaryDirectory() as folder:
        storage = {"storage_file": str(Path(folder) / "elements.db"), "url": "https://site.example/"}
        page = Selector(site["before"][0], adaptive=True, storage_args=storage, url="https://site.example/")
        for name, css in site["selectors"].items():
            page.css(css, auto_save=True, identifier=name)
        for text in site["after"]:
            page = Selector(text, adaptive=True, storage_args=storage, url="https://site.example/")
            values: dict[str, str | None] = {}
            for name, css in site["selectors"].items():
                element = next(iter(page.css(css, adaptive=True, identifier=name) or ()), None)
                values[name] = str(element.get_all_text(strip=True)) if element is not None else None
            found.append(values)
    return found


def autoscraper(site: dict[str, Any]) -> list[dict[str, str | None]]:
    """Rules built from the known pages of the new layout."""
    from autoscraper import AutoScraper

    scraper = AutoScraper()
    for at, values in site["known"].items():
        scraper.build(
            html=site["after"][int(at)], wanted_dict={name: [text] for name, text in values.items()}, update=True
        )
    found = []
    for text in site["after"]:
        result = scraper.get_result_exact(html=text, group_by_alias=True) if scraper.stack_list else {}
        found.append({name: next(iter(result.get(name) or ()), None) for name in site["selectors"]})
    return found


def main() -> None:
    site = json.load(sys.stdin)
    told = {}
    for name, peer in (("Scrapling", scrapling), ("AutoScraper", autoscraper)):
        try:
            told[name] = peer(site)
        except Exception as error:  # a peer that fails on a site found nothing there
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            told[name] = [dict.fromkeys(site["selectors"]) for _ in site["after"]]
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
