"""Hundreds of real pages are judged as pages. The few that are shells indeed are named here, each with the reason."""

from __future__ import annotations

import gzip
import tarfile

import pytest

from gossamer.routing.blocks import judge
from tests.corpora import corpus

from .walls import answer

# Front pages that were fetched without a browser and hold nothing but scripts; each was looked at.
SHELLS = {
    "sites/61.html": "a video site: <div ui-view></div> and 13 scripts",
    "sites/86.html": "a site of moving pictures: an Angular view and 16 scripts",
    "sites/99.html": "a television site: ng-include and ng-view, 19 scripts, the words 'Copied to Clipboard'",
    "sites/117.html": 'a site of photographs: <span id="react-root"></span>',
}


def _pages(name: str) -> dict[str, bytes]:
    if name in ("sites", "bookfiles"):
        with tarfile.open(corpus("scrapy-bench", f"{name}.tar.gz")) as archive:
            found = ((member.name, archive.extractfile(member)) for member in archive if member.isfile())
            return {f"{name}/{inner}": file.read() for inner, file in found if file is not None}
    return {f"{name}/{file.name}": gzip.decompress(file.read_bytes()) for file in corpus(name, "html").glob("*.gz")}


@pytest.mark.parametrize(
    ("name", "least"), [("product-extraction", 60), ("article-extraction", 90), ("sites", 130), ("bookfiles", 200)]
)
def test_real_pages_are_pages(name: str, least: int) -> None:
    pages = _pages(name)
    assert len(pages) >= least

    blocks = {inner: judge(answer(body)) for inner, body in pages.items()}

    blocked = {inner: block for inner, block in blocks.items() if block is not None}
    assert {inner: block.kind for inner, block in blocked.items()} == {
        inner: "shell" for inner in SHELLS if inner.startswith(f"{name}/")
    }


@pytest.mark.parametrize("name", ["product-extraction", "article-extraction", "sites", "bookfiles"])
def test_real_pages_of_their_usual_size_are_pages_after_rendering_too(name: str) -> None:
    for inner, body in _pages(name).items():
        assert judge(answer(body), usual_size=len(body), rendered=True) is None, inner
