"""`gossamer check` for spiders in Python, as a user sees it."""

from __future__ import annotations

import sys

from tests.unit.commandline import project as project
from tests.unit.test_cli_fetch import site as site
from tests.unit.test_cli_recipes import shop as shop

SPIDER = """\
from gossamer import Item, Money, Spider


class Lamp(Item, key="title"):
    title: str
    price: Money | None = None


class Lamps(Spider):
    start_urls = ["{url}/list"]
    custom_settings = {{"DOWNLOAD_DELAY": 1}}

    def parse(self, page):
        yield from page.follow_all("h3 a", self.lamp)
        yield page.follow("https://elsewhere.example/", self.lamp)
        yield from page.follow_all("a.next")

    def lamp(self, page):
        yield Lamp(title=page.css("h1::text").get(), price=Money.parse(page.css(".price::text").get()))

    def broken(self, page):
        yield {{"number": int(page.data.get("text", "none"))}}
"""


def test_a_spider_without_a_page_shows_its_callbacks_and_what_has_no_effect(project, shop):
    project.write("lamps.py", SPIDER.format(url=shop.url))
    said = project.run("check", "lamps.py")
    assert said.code == 0
    assert "broken, lamp, parse" in said.out
    assert "Lamps.custom_settings has no effect." in said.err


def test_a_callback_shows_its_links_and_records_and_stores_nothing(project, shop):
    project.write("lamps.py", SPIDER.format(url=shop.url))

    said = project.run("check", "lamps.py", f"{shop.url}/list", "--json").json
    assert (said["callback"], said["refusal"], said["records"]) == ("parse", None, [])
    links = {links["to"]: links for links in said["links"]}
    assert (links["lamp"]["count"], links["lamp"]["elsewhere"]) == (7, 1)
    assert links["parse"]["first"] == [f"{shop.url}/list?page=2"]  # a link without a callback stays with this one

    said = project.run("check", "lamps.py", f"{shop.url}/item/0", "--callback", "lamp")
    assert said.code == 0
    assert "1 record" in said.out
    assert '"currency"' in said.out
    assert not (project.folder / "gossamer-data").exists()


def test_a_callback_that_fails_shows_the_line_of_the_users_code(project, shop):
    project.write("lamps.py", SPIDER.format(url=shop.url))
    said = project.run("check", "lamps.py", f"{shop.url}/item/0", "--callback", "broken")
    assert said.code == 1
    assert 'int(page.data.get("text", "none"))' in said.out
    assert "This page would be a parse failure" in said.out

    good = project.run("check", "lamps.py", f"{shop.url}/item/0", "--callback", "broken", "--data", '{"text": "7"}')
    assert (good.code, '"number":7' in good.out) == (0, True)
    assert "not a JSON object" in project.run("check", "lamps.py", f"{shop.url}/item/0", "--data", "7").err

    wrong = project.run("check", "lamps.py", f"{shop.url}/item/0", "--callback", "lam")
    assert wrong.code == 1
    assert 'Did you mean "lamp"?' in wrong.err


def test_the_shell_can_import_the_spiders_of_the_project(project, shop, monkeypatch):
    project.write("spiders/lamps.py", SPIDER.format(url=shop.url))
    project.write("helper.py", "WORD = 'helped'")
    (project.folder / "page.html").write_text("<h1>One</h1>", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    said = project.run(
        "shell", "page.html", stdin="from lamps import Lamp\nimport helper\nhelper.WORD, Lamp(title='a')"
    )
    assert said.code == 0, said
    assert "helped" in said.out
