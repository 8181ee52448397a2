"""Links in the documentation lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .manual import PAGES, ROOT, anchors_of, links_of, prose_of

_OUTSIDE = ("http://", "https://", "mailto:")
_MADE = {"bench/results.json"}  # by `make bench`, not kept
_PATH = re.compile(r"`((?:src|tests|docs|bench|scripts)/[\w./-]*)`")


def names() -> list[str]:
    return [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("name", names())
def test_relative_links_and_pictures_exist(name):
    page = ROOT / name
    broken = []
    for link in links_of(page):
        if link.startswith(_OUTSIDE):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)

    assert broken == []


@pytest.mark.parametrize("name", names())
def test_files_that_are_named_exist(name):
    named = set(_PATH.findall(prose_of(ROOT / name))) - _MADE

    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_page_of_the_documentation_can_be_found():
    docs = ROOT / "docs"
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in (ROOT / "README.md", docs / "README.md")
        for link in links_of(page)
        if not link.startswith((*_OUTSIDE, "#"))
    }

    assert {page for page in docs.rglob("*.md") if page not in linked} == set()


def test_pictures_load_nothing_from_elsewhere():
    loaded = re.compile(r"""(?:href|src)\s*=\s*["']https?:|url\(\s*["']?https?:|@import|<script""")
    pictures: list[Path] = list((ROOT / "docs" / "images").glob("*.svg"))

    assert pictures
    assert [picture.name for picture in pictures if loaded.search(picture.read_text(encoding="utf-8"))] == []
