"""The spiders of docs/examples.md, each on the form of the site that it is for: every quotation, nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

from gossamer import Spider
from tests.browser.conftest import chromium as chromium
from tests.docs.manual import ROOT, blocks_of
from tests.sites.quotes import FORMS, PASSWORD, QUOTES, quotes_site

from .crawling import crawled, settings_for

pytestmark = [pytest.mark.usefixtures("chromium"), pytest.mark.long]

EXAMPLES = {one.title: one.code for one in blocks_of(ROOT / "docs" / "examples.md")}
TRUTH = {one["text"]: one["author"] for one in QUOTES}


@pytest.fixture(scope="module")
def site():
    with quotes_site() as opened:
        yield opened


def test_there_is_a_short_spider_for_every_form_of_the_site():
    for title, code in EXAMPLES.items():
        lines = [line for line in code.splitlines() if line.strip()]
        assert len(lines) <= 15, f"{title} has {len(lines)} lines"
    for form in FORMS:
        assert any(f"quotes.example{form}" in code for code in EXAMPLES.values()), form


@pytest.mark.parametrize("title", EXAMPLES)
async def test_the_spider_finds_every_quotation(title, site, tmp_path, monkeypatch):
    monkeypatch.setenv("GOSSAMER_SECRET_QUOTES_PASSWORD", PASSWORD)
    names: dict[str, object] = {"__name__": title.removesuffix(".py")}
    exec(compile(EXAMPLES[title].replace("https://quotes.example", site.url()), title, "exec"), names)
    (spider,) = [
        one for one in names.values() if isinstance(one, type) and issubclass(one, Spider) and one is not Spider
    ]
    rate = "20/s" if title == "slow.py" else "unlimited"
    read = settings_for(
        tmp_path, fetch__allow_private=True, politeness__rate=rate, retry__max_attempts=20, retry__rate_limited_cap="2s"
    )

    left = await crawled(spider(), read)

    assert {record.data["text"]: record.data["author"] for record in left.records} == TRUTH
    assert len(left.records) == len(TRUTH)
    assert left.report.counts.dead == 0
    if title == "slow.py":
        told = Counter(site.statuses("/slow"))
        assert told[200] == 5
        assert told[429] >= 1
