"""A crawl that meets documents: they are pages like others, and one that cannot be read is a dead letter of its own."""

from __future__ import annotations

from gossamer import Item, Page, Spider
from tests.journey.crawling import crawled, settings_for
from tests.sites.downloads import Content, download_site
from tests.unit.documents import Line, pdf, xlsx


class Paper(Item, key="url"):
    title: str | None = None
    text: str | None = None
    rows: int = 0


class Papers(Spider):
    def __init__(self, url: str) -> None:
        self.start_urls = [url]

    def parse(self, page: Page):
        yield Paper(
            url=page.url,
            title=page.title,
            text=page.main_text() or None,
            rows=sum(len(t.rows) for t in page.tables()),
        )
        yield from page.follow_all(page.links())


async def test_documents_are_read_their_links_followed_and_a_broken_one_dies_alone(tmp_path):
    async with download_site() as site:
        url = site.show(
            "/", '<title>Home</title><a href="/paper">paper</a><a href="/prices">prices</a><a href="/bad">bad</a>'
        )
        line = Line(60, 700, "Rivers run to the sea, and this is where more is said of them.")
        paper = pdf([[line]], info="/Title (On Rivers)", links=[(line, f"{url}more")])
        site.shown["/paper"] = Content(body=paper, type="application/octet-stream")
        site.shown["/prices"] = Content(
            body=xlsx({"S": [["name", "price"], ["Lamp", 9]]}), type="application/vnd.ms-excel"
        )
        site.shown["/bad"] = Content(body=paper[:250], type="application/pdf")
        site.show("/more", "<title>More</title>")

        after = await crawled(Papers(url), settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"]))

    found = {record.data.get("title"): record.data for record in after.records}
    assert set(found) == {"Home", "On Rivers", None, "More"}
    assert found["On Rivers"]["text"] == line.text
    assert found[None]["rows"] == 1
    ((address, letter),) = after.letters.items()
    assert address.endswith("/bad")
    assert "a pdf document that cannot be read" in letter.message
    after.assert_adds_up()
