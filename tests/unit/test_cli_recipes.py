"""`gossamer check`, `gossamer new --recipe` and `gossamer spiders` with recipes, as a user sees them."""

from __future__ import annotations

import pytest

from gossamer.errors import SpiderNotFound
from gossamer.parse.discovery import list_spiders, load_spider
from gossamer.recipe.table import BadRecipe
from tests.unit.commandline import project as project
from tests.unit.crawled import SHOP, crawl_half
from tests.unit.test_cli_fetch import ANSWERS
from tests.unit.test_cli_fetch import site as site
from tests.unit.test_recipe_draft import PRODUCT, cards

HTML = {"Content-Type": "text/html; charset=utf-8"}
RECIPE = """\
start = "{url}/list"
[pages.listing]
follow = [{{ css = "h3 a", to = "product" }}]
next = "a.next"
[pages.product]
key = "sku"
[pages.product.fields]
sku = ".sku"
title = {{ css = "h1", required = true }}
price = {{ css = ".price", type = "money" }}
old = {{ css = "h1", type = "int" }}
"""


@pytest.fixture
def shop(site, monkeypatch):
    """A list, a product behind each of its links, and a page that lost its product."""
    listing = f"<title>List</title><ol>{cards(6)}</ol><a class='next' href='/list?page=2'>next</a>"
    monkeypatch.setitem(ANSWERS, "/list", (200, HTML, listing.encode()))
    monkeypatch.setitem(ANSWERS, "/lost", (200, HTML, b"<p class='price'>5 EUR</p>"))
    for number in range(6):
        monkeypatch.setitem(ANSWERS, f"/item/{number}", (200, HTML, PRODUCT.encode()))
    return site


def test_check_without_a_page_says_that_the_recipe_is_good_or_lists_every_fault(project):
    project.write("shop.toml", RECIPE.format(url="https://shop.example"))
    said = project.run("check", "shop.toml")
    assert (said.code, said.lines[0]) == (0, "shop.toml is a valid recipe. To try it on a page, name one.")

    project.write("bad.toml", RECIPE.format(url="no").replace('"money"', '"gold"'))
    said = project.run("check", "bad.toml")
    assert (said.code, said.out) == (1, "")
    assert [line.partition(": ")[0] for line in said.err.splitlines()] == ["bad.toml, line 1", "bad.toml, line 10"]
    assert project.run("check", "bad.toml", "--json").json["faults"][0]["line"] == 1


def test_check_shows_what_every_rule_finds_on_a_page_and_what_would_be_stored(project, shop):
    project.write("shop.toml", RECIPE.format(url=shop.url))

    said = project.run("check", "shop.toml", f"{shop.url}/item/0", "--json").json

    assert (said["kind"], said["refusal"]) == ("product", None)
    assert {field["field"]: (field["rule"], field["found"], field["value"]) for field in said["fields"]} == {
        "sku": ("css .sku", "LIT-033", "LIT-033"),
        "title": ("css h1", "Opal Lamp", "Opal Lamp"),
        "price": ("css .price", "€25.95", {"amount": "25.95", "currency": "EUR"}),
        "old": ("css h1", "Opal Lamp", None),
    }
    assert [(record["type"], record["key"]) for record in said["records"]] == [("Product", "LIT-033")]
    assert [fault["message"] for fault in said["quality"]] == [
        "old: css h1 found 'Opal Lamp', in which there is no int"
    ]
    assert not (project.folder / "gossamer-data").exists()


def test_check_counts_links_and_shows_the_first_ones(project, shop):
    project.write("shop.toml", RECIPE.format(url=shop.url))

    said = project.run("check", "shop.toml", f"{shop.url}/list")

    assert said.code == 0
    assert said.lines[0].startswith("pages.listing")
    assert "6 links to product  css h3 a" in said.lines
    assert said.lines.count(f"  {shop.url}/item/0") == 1
    assert "  ... 3 more" in said.lines


def test_check_of_a_page_without_its_product_ends_with_one(project, shop):
    project.write("shop.toml", RECIPE.format(url=shop.url))

    said = project.run("check", "shop.toml", f"{shop.url}/lost", "--kind", "product")

    assert said.code == 1
    assert said.lines[-1] == "This page would be a parse failure: required and not found: sku, title"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("check", "gone.toml"), "There is no file"),
        (("check", "shop.toml", "{url}/nothing"), "answered 404"),
        (("check", "shop.toml", "{url}/secret"), "robots.txt forbids"),
        (("check", "shop.toml", "{url}/list", "--kind", "prodct"), 'no page kind \'prodct\'. Did you mean "product"?'),
        (("crawl", "gone.yaml"), "There is no file"),
        (("new",), "Give the project a name"),
        (("new", "--recipe", "{url}/nothing"), "answered 404"),
        (("new", "--recipe", "{url}/binary"), "drafts are made from HTML pages"),
        (("new", "a b", "--recipe", "{url}/list"), "cannot be a recipe's name"),
        (("new", "x", "--recipe", "{url}/list", "--url", "{url}"), "leave out --url and --deploy"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_told_in_one_line(project, shop, words, told):
    project.write("shop.toml", RECIPE.format(url=shop.url))
    project.write(
        "spiders/python.py",
        "from gossamer import Spider\nclass Python(Spider):\n    start_urls = ['https://a.example/']\n",
    )

    said = project.run(*(word.format(url=shop.url) for word in words))

    assert (said.code, said.out) == (1, "")
    assert told in said.err.splitlines()[-1]


def test_check_reads_an_archived_page_without_a_request(project):
    project.fill(crawl_half)
    project.write("spiders/site.yaml", f"start: {SHOP}\npages: {{home: {{fields: {{title: h1}}}}}}\n")
    ref = project.run("dead", "show", f"{SHOP}/broken", "--json").json[0]["archive_ref"]

    said = project.run("check", "site", ref, "--json").json

    assert (said["kind"], said["fields"][0]["found"]) == ("home", "Half a page")


def test_a_draft_is_written_once_and_passes_its_own_check(project, shop):
    said = project.run("new", "--recipe", f"{shop.url}/list", "lamps")
    assert (said.code, said.lines[0]) == (0, "Wrote spiders/lamps.toml: listing -> product. Next:")
    assert shop.seen.count("/list") == 1
    assert len([path for path in shop.seen if path.startswith("/item/")]) == 6

    assert project.run("check", "lamps", f"{shop.url}/list").code == 0
    found = project.run("check", "lamps", f"{shop.url}/item/3", "--json").json
    assert (found["kind"], found["records"][0]["key"]) == ("product", "LIT-033")
    again = project.run("new", "--recipe", f"{shop.url}/list", "lamps")
    assert (again.code, "exists already and was not changed" in again.err) == (1, True)


def test_recipes_are_listed_and_found_like_spiders(project):
    project.write("spiders/lamps.toml", 'summary = "All lamps"\n' + RECIPE.format(url="https://shop.example"))
    project.write(
        "spiders/books.yml", "name: all-books\nstart: https://b.example/\npages: {book: {fields: {title: h1}}}\n"
    )
    project.write("spiders/_draft.toml", "not a recipe")
    project.write("spiders/broken.toml", 'start = "https://a.example/"\n[pages.x]\nfollw = 1\n')

    said = project.run("spiders")

    assert said.code == 0
    assert project.run("spiders", "--strict").code == 1
    assert [line.split() for line in said.lines[1:3]] == [
        ["all-books", "spiders/books.yml", "-"],
        ["lamps", "spiders/lamps.toml", "All", "lamps"],
    ]
    assert "broken.toml, line 3: pages.x.follw is not a key of a recipe" in said.lines[-1] + said.lines[-2]
    assert load_spider("all-books", project.folder, "spiders").start_urls == ("https://b.example/",)
    assert load_spider("lamps", project.folder, "spiders") is load_spider("lamps", project.folder, "spiders")


def test_a_recipe_is_loaded_by_its_path_and_told_by_it(project):
    project.write("a/shop.toml", RECIPE.format(url="no"))

    with pytest.raises(BadRecipe, match=r"^a/shop.toml, line 1: start"):
        load_spider("a/shop.toml", project.folder, "spiders")
    with pytest.raises(SpiderNotFound, match=r"Did you mean .*shop.toml"):
        load_spider("a/shopp.toml", project.folder, "spiders")


def test_in_the_projects_own_folder_only_files_that_speak_of_pages_are_recipes(project):
    project.write("pyproject.toml", "[project]\nname = 'x'\n")
    project.write("compose.yml", "services: {}\n")
    project.write("lamps.toml", RECIPE.format(url="https://shop.example"))

    found = list_spiders(project.folder, ".")

    assert ([spec.name for spec in found.spiders], found.broken) == (["lamps"], ())


def test_a_file_that_fails_in_any_way_is_listed_as_broken_and_the_others_are_found(project):
    project.write("spiders/größe.toml", RECIPE.format(url="https://shop.example"))
    project.write("spiders/digits.toml", f"start = {'9' * 5000}\n")
    project.write("spiders/kind.toml", 'start = "https://a.example/"\n[pages.recipe]\nfields.a = "b"\n')
    project.write("spiders/named.py", "from gossamer import Spider\nclass A(Spider):\n    name = 5\n")
    (project.folder / "spiders" / "lost.py").symlink_to(project.folder / "nowhere.py")
    (project.folder / "spiders" / "lost.yaml").symlink_to(project.folder / "nowhere.yaml")

    found = list_spiders(project.folder, "spiders")

    assert [spec.name for spec in found.spiders] == ["größe"]
    assert [file.path.name for file in found.broken] == [
        "digits.toml", "kind.toml", "lost.py", "lost.yaml", "named.py",
    ]  # fmt: skip
    assert load_spider("gro\u0308ße", project.folder, "spiders").start_urls == ("https://shop.example/list",)


def test_a_draft_of_an_empty_page_tells_that_nothing_was_recognised(project, shop, monkeypatch):
    monkeypatch.setitem(ANSWERS, "/empty", (200, HTML, b"<html></html>"))

    said = project.run("new", "--recipe", f"{shop.url}/empty", "empty")

    assert (said.code, said.lines[0]) == (0, "Wrote spiders/empty.toml: page (nothing was recognised). Next:")
    assert project.run("check", "empty").code == 0


def test_check_tells_of_links_that_are_too_many(project, shop, monkeypatch):
    monkeypatch.setitem(ANSWERS, "/many", (200, HTML, b"<h3><a href='/a'>x</a></h3>" * 10_001))
    project.write("shop.toml", RECIPE.format(url=shop.url))

    said = project.run("check", "shop.toml", f"{shop.url}/many", "--kind", "listing", "--json")

    assert said.code == 1
    assert "more than 10,000 values" in said.json["refusal"]
