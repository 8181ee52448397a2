"""project/recipes, spiders, settings_view and scaffold, as a server or a script calls them: no command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.errors import Misconfigured, UnknownSetting
from gossamer.model.page import Headers
from gossamer.parse.page import Page
from gossamer.project.pages.fetch import file_page, text_of
from gossamer.project.settings_view import setting_lines, settings_view
from gossamer.project.spiders.recipes import (
    RecipeFaults,
    check_recipe,
    demand_kind,
    draft,
    load_for_check,
    recipe_view,
)
from gossamer.project.spiders.scaffold import new_project
from gossamer.project.spiders.spiders import spiders_of
from gossamer.recipe.spider import RecipeSpider
from gossamer.settings import FILE_NAME, Settings, load

RECIPE = """
start = "https://shop.example/"

[pages.shelf]
follow = [{ css = "li a", to = "book" }]

[pages.book]
item = "Book"
[pages.book.fields]
title = { css = "h1", required = true }
pages = { css = ".pages", type = "int" }
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / FILE_NAME).write_text('state = "redis://me:hunter2@localhost:6379/0"\nproject = "shop"\n')
    (tmp_path / "spiders").mkdir()
    (tmp_path / "spiders/shop.toml").write_text(RECIPE)
    (tmp_path / "spiders/bad.toml").write_text('start = "https://a.example/"\n[pages.x]\nfollw = 1\n')
    return load(start=tmp_path, environ={})


def served(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def page(tmp_path: Path, html: str) -> Page:
    (tmp_path / "page.html").write_text(html)
    return file_page(tmp_path / "page.html", "https://shop.example/1")


def recipe(settings: Settings) -> RecipeSpider:
    found = load_for_check(settings, "shop", settings.root)
    assert isinstance(found, RecipeSpider)
    return found


def test_a_recipe_is_described_or_its_faults_are(settings: Settings) -> None:
    view = served(recipe_view(recipe(settings)))
    assert (view["valid"], view["name"]) == (True, "shop")
    assert view["kinds"]["book"] == {
        "item": "Book",
        "fields": ["title", "pages"],
        "optional": ["pages"],
        "leads_to": [],
    }
    assert view["kinds"]["shelf"]["leads_to"] == ["book"]
    bad = load_for_check(settings, "spiders/bad.toml", settings.root)
    assert isinstance(bad, RecipeFaults)
    assert (bad.valid, bad.faults[0].line) == (False, 3)
    with pytest.raises(Misconfigured, match="no page kind 'bok'"):
        demand_kind(recipe(settings), "bok")


async def test_what_each_rule_finds_is_one_value(settings: Settings, tmp_path: Path) -> None:
    good = served(await check_recipe(settings, recipe(settings), page(tmp_path, "<h1>Dune</h1><p class=pages>412</p>")))
    assert (good["kind"], good["refusal"], good["records"][0]["data"]) == (
        "book",
        None,
        {"url": "https://shop.example/1", "title": "Dune", "pages": 412},
    )
    poor = served(await check_recipe(settings, recipe(settings), page(tmp_path, "<p>Nothing</p>"), "book"))
    assert (poor["records"], poor["refusal"]) == ([], "required and not found: title")
    shelf = served(await check_recipe(settings, recipe(settings), page(tmp_path, "<li><a href=/2>Two</a>"), "shelf"))
    assert shelf["links"] == [
        {"rule": shelf["links"][0]["rule"], "to": "book", "count": 1, "first": ["https://shop.example/2"]}
    ]


async def test_a_draft_never_overwrites(settings: Settings, tmp_path: Path) -> None:
    async def fetch(url: str) -> Page:
        return page(tmp_path, "<h1>Dune</h1>")

    with pytest.raises(Misconfigured, match="exists already"):
        await draft(settings, "https://shop.example/", None, folder=tmp_path, fetch=fetch)
    done = await draft(settings, "https://shop.example/", "books", folder=tmp_path, fetch=fetch)
    assert (done.ref, str(done.file)) == ("books", "spiders/books.toml")
    assert (tmp_path / done.file).is_file()


def test_spiders_and_broken_files_are_listed(settings: Settings) -> None:
    found = served(spiders_of(settings))
    assert [one["name"] for one in found["spiders"]] == ["shop"]
    assert [one["line"] for one in found["broken"]] == [3]


def test_settings_have_origins_and_no_secrets(settings: Settings) -> None:
    view = served(settings_view(setting_lines(settings)))
    assert "hunter2" not in json.dumps(view)
    assert view["project"] == {"value": "shop", "from": str(settings.root / FILE_NAME)}
    assert view["crawl.depth"] == {"value": None, "from": "default"}
    assert [line.key for line in setting_lines(settings, "lease")] == [key for key in view if key.startswith("lease.")]
    with pytest.raises(UnknownSetting, match=r"Did you mean crawl\.depth\?"):
        setting_lines(settings, "depth")


def test_a_new_project_has_a_spider_and_is_made_once(tmp_path: Path) -> None:
    names = new_project(tmp_path, "book-shop", "https://books.example/")
    assert [one.name for one in spiders_of(load(start=tmp_path / "book-shop", environ={})).spiders] == [names.spider]
    with pytest.raises(Misconfigured, match="exists already"):
        new_project(tmp_path, "book-shop", None)


def test_the_text_of_a_page_is_its_main_content(tmp_path: Path) -> None:
    assert "Dune" in text_of(page(tmp_path, "<main><h1>Dune</h1><p>A desert.</p></main>"), markdown=True)


async def test_a_draft_of_an_address_in_numbers_is_called_by_all_of_them(settings: Settings, tmp_path: Path) -> None:
    async def fetch(url: str) -> Page:
        return page(tmp_path, "<title>Hello</title><h1>World</h1>")

    done = await draft(settings, "http://10.0.0.2:8700/list", None, folder=tmp_path, fetch=fetch)
    assert done.name == "10-0-0-2"


async def test_a_page_of_json_cannot_be_drafted_and_the_way_on_is_named(settings: Settings, tmp_path: Path) -> None:
    async def fetch(url: str) -> Page:
        snapshot = page(tmp_path, '{"things": []}').snapshot
        headers = Headers([("Content-Type", "application/json")])
        return Page(msgspec.structs.replace(snapshot, headers=headers))

    with pytest.raises(Misconfigured, match=r"HTML pages\. docs/recipes\.md has a recipe for JSON"):
        await draft(settings, "https://api.example/", None, folder=tmp_path, fetch=fetch)
