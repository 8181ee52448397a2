"""`gossamer new NAME --example URL name=value ...`: a recipe from what a person reads on a page."""

from __future__ import annotations

import ast
import json
import tomllib

import pytest

from gossamer.cli.project import SEPARATOR, joined_examples
from gossamer.model.url import typed_url
from gossamer.project.spiders.examples import read_examples
from gossamer.recipe.by_example import type_of
from gossamer.recipe.model import FieldType
from gossamer.recipe.python_file import PlanField, SpiderPlan, literal, python_spider
from tests.unit.commandline import project as project
from tests.unit.test_cli_fetch import ANSWERS
from tests.unit.test_cli_fetch import site as site

HTML = {"Content-Type": "text/html; charset=utf-8"}
NAMES = ("Moss lamp", "Fern chair", "Reed clock", "Sedge stool", "Rush vase", "Bark shelf")


@pytest.fixture
def shop(site, monkeypatch):
    links = "".join(f"<li class='card'><h3><a href='/item/{n}'>{name}</a></h3></li>" for n, name in enumerate(NAMES))
    monkeypatch.setitem(ANSWERS, "/all", (200, HTML, f"<ol class='cards'>{links}</ol>".encode()))
    for n, name in enumerate(NAMES):
        body = (
            f"<nav><a href='/all'>All</a></nav><h1>{name}</h1><p class='now'>{n * 7 + 5}.50 €</p><dl><dt>Number</dt>"
            f"<dd>AB-{n}00</dd><dt>Rating</dt><dd>{n}.5 of 5</dd></dl><p class='tag'>{NAMES[1 if n == 1 else 0]}</p>"
        )
        monkeypatch.setitem(ANSWERS, f"/item/{n}", (200, HTML, body.encode()))
    return site


def test_a_recipe_is_learned_from_one_page_and_reads_the_others(project, shop):
    said = project.run(
        "new", "lamps", "--example", f"{shop.url}/item/1", "title=Fern chair", "price=12.50", "sku=AB-100", "rating=1.5"
    )

    assert said.code == 0, said.err
    recipe = tomllib.loads((project.folder / "spiders/lamps.toml").read_text())
    assert recipe["pages"]["item"]["key"] == "sku"
    assert recipe["pages"]["item"]["fields"]["price"]["type"] == "money"
    assert recipe["pages"]["item"]["fields"]["price"]["currency"] == "EUR"
    assert recipe["start"] == [f"{shop.url}/all"]
    (record,) = project.run("check", "lamps", f"{shop.url}/item/5", "--json").json["records"]
    assert {name: value for name, value in record["data"].items() if name != "url"} == {
        "title": "Bark shelf", "price": {"amount": "40.50", "currency": "EUR"}, "sku": "AB-500", "rating": 5.5
    }  # fmt: skip
    (links,) = project.run("check", "lamps", f"{shop.url}/all", "--json").json["links"]
    assert (links["to"], links["count"]) == ("item", 6)


@pytest.mark.parametrize(("name", "type"), [("fine-lamps", "FineLamps"), ("lampen_ü", "Item"), ("2nd", "Item")])
def test_records_of_a_recipe_have_a_type_named_after_it(project, shop, name, type):
    said = project.run("new", name, "--example", f"{shop.url}/item/1", "title=Fern chair")
    assert said.code == 0, said.err
    (file,) = (project.folder / "spiders").glob("*.toml")
    assert (f'item = "{type}"' in file.read_text()) is (type != "Item")


def test_the_command_that_comes_next_can_be_pasted_into_a_shell(project, shop, monkeypatch):
    monkeypatch.setitem(ANSWERS, "/item/1?size=2&colour=red", ANSWERS["/item/1"])
    url = f"{shop.url}/item/1?size=2&colour=red"
    said = project.run("new", "lamps", "--example", url, "title=Fern chair")

    assert said.code == 0, said.err
    assert f"gossamer check lamps '{url}'" in said.out


def test_a_value_that_stands_nowhere_is_named_and_nothing_is_written(project, shop):
    said = project.run("new", "lamps", "--example", f"{shop.url}/item/1", "title=Fern chair", "brand=Nobody")
    assert said.code != 0
    assert "brand='Nobody'" in said.err
    assert not (project.folder / "spiders/lamps.toml").exists()


def test_a_spider_in_python_is_learned_and_reads_the_other_pages(project, shop):
    given = ("title=Fern chair", "price=12.50", "sku=AB-100", "rating=1.5")
    said = project.run("new", "fine-lamps", "--example", f"{shop.url}/item/1", *given, "--python")

    assert said.code == 0, said.err
    text = (project.folder / "spiders/fine_lamps.py").read_text()
    assert 'price=Money.parse(page.css(".now").text, "EUR")' in text
    assert "following-sibling" in text  # a label
    (record,) = project.run("check", "fine-lamps", f"{shop.url}/item/5", "--callback", "item", "--json").json["records"]
    assert (record["type"], record["key"]) == ("FineLampsItem", "AB-500")
    assert {name: value for name, value in record["data"].items() if name != "url"} == {
        "title": "Bark shelf", "price": {"amount": "40.50", "currency": "EUR"}, "sku": "AB-500", "rating": 5.5
    }  # fmt: skip
    crawled = project.run("crawl", "fine-lamps", "--quiet", "-o", "lamps.jsonl")
    assert crawled.code == 0, crawled.err
    assert len((project.folder / "lamps.jsonl").read_text().splitlines()) == len(NAMES)


def test_code_reads_what_css_and_xpath_cannot(project, shop, monkeypatch):
    links = "".join(f"<li class='card'><h3><a href='/thing/{n}'>{n}</a></h3></li>" for n in range(6))
    monkeypatch.setitem(ANSWERS, "/things", (200, HTML, f"<ol class='cards'>{links}</ol>".encode()))
    for n in range(6):
        data = json.dumps({"@context": "https://schema.org", "@type": "Product", "mpn": f"M{n}X\"'"})
        state = json.dumps({"item": {"made": [f"Lisbon {n}"]}})
        body = (
            f"<nav><a href='/things'>All</a></nav><h1>Thing {n}</h1>"
            f"<table><tr><th>Weight</th><th>Seats</th></tr><tr><td>{n + 2},5 kg</td><td>{n + 3}</td></tr></table>"
            f"<p><b>Since:</b> 0{n + 1}.03.2024</p><p class='stars' style='width: {n + 5}0%'></p>"
            f"<p class='stock'>{'Auf Lager' if n % 2 else 'Ausverkauft'}</p><p class='of'>page {n} of {n + 40}</p>"
            f"<script type='application/ld+json'>{data}</script><script>window.STATE = {state};</script>"
        )
        monkeypatch.setitem(ANSWERS, f"/thing/{n}", (200, HTML, body.encode()))

    given = ("title=Thing 1", "weight=3.5", "seats=4", "since=2024-03-02", "stars=3.0", "available=true",
             "pages=41", "mpn=M1X\"'", "made=Lisbon 1")  # fmt: skip
    said = project.run("new", "things", "--example", f"{shop.url}/thing/1", *given, "--python")

    assert said.code == 0, said.err
    (record,) = project.run("check", "things", f"{shop.url}/thing/4", "--callback", "item", "--json").json["records"]
    assert {name: value for name, value in record["data"].items() if name != "url"} == {
        "title": "Thing 4", "weight": 6.5, "seats": 7, "since": "2024-03-05", "stars": 4.5, "available": False,
        "pages": 44, "mpn": "M4X\"'", "made": "Lisbon 4",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ['"', "'", '"""', "\\", '\\"', "a\nb", "\u2028", "{x}", '" + page.url + "', "\x00\x7f", "ü"]
)
def test_a_text_of_a_site_is_a_literal_in_the_code(text):
    assert ast.literal_eval(literal(text)) == text


def test_a_label_that_looks_like_code_stays_a_text(project, shop, monkeypatch):
    for n in (0, 1, 2):
        body = (
            f"<nav><a href='/all'>All</a></nav><h1>{NAMES[n]}</h1><dl><dt>')] + open(\"x\") + ['</dt><dd>L{n}</dd></dl>"
        )
        monkeypatch.setitem(ANSWERS, f"/item/{n}", (200, HTML, body.encode()))
    said = project.run("new", "lamps", "--example", f"{shop.url}/item/1", "title=Fern chair", "colour=L1", "--python")
    assert said.code == 0, said.err
    called = {one.func.id for one in ast.walk(ast.parse((project.folder / "spiders/lamps.py").read_text()))
              if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)}  # fmt: skip
    assert called <= {"LampsItem", "next", "map"}


def test_a_field_that_python_cannot_name_is_refused(project, shop):
    said = project.run("new", "lamps", "--example", f"{shop.url}/item/1", "class=Fern chair", "--python")
    assert said.code == 1
    assert "'class' cannot be the name of a field in Python" in said.err


@pytest.mark.parametrize("script", ["<script>window.STATE = {}</script>", "<div data-state='{}'>x</div>"])
def test_a_script_that_is_no_strict_json_leaves_its_field_empty_and_the_page_is_read(
    project, shop, monkeypatch, script
):
    for n in range(6):
        state = json.dumps({"item": {"made": [f"Lisbon {n}"]}}) if n < 5 else '{item: {made: ["Lisbon 5"],}}'
        body = f"<nav><a href='/all'>All</a></nav><h1>{NAMES[n]}</h1>{script.replace('{}', state)}"
        monkeypatch.setitem(ANSWERS, f"/item/{n}", (200, HTML, body.encode()))
    given = ("title=Fern chair", "made=Lisbon 1")
    said = project.run("new", "lamps", "--example", f"{shop.url}/item/1", *given, "--python")
    assert said.code == 0, said.err

    for n, made in ((4, "Lisbon 4"), (5, None)):
        found = project.run("check", "lamps", f"{shop.url}/item/{n}", "--callback", "item", "--json")
        (record,) = found.json["records"]
        assert (record["data"]["title"], record["data"].get("made")) == (NAMES[n], made)


def test_a_picture_without_an_address_leaves_its_field_empty_and_the_page_is_read(project, shop, monkeypatch):
    for n in range(6):
        place = f"/a/{n}.jpg" if n < 5 else "data:image/gif;base64,R0lGOD"
        body = f"<nav><a href='/all'>All</a></nav><h1>{NAMES[n]}</h1><img class='photo' src='{place}'>"
        monkeypatch.setitem(ANSWERS, f"/item/{n}", (200, HTML, body.encode()))
    monkeypatch.setattr("gossamer.project.spiders.examples.MOST_LIKE", 2)
    given = ("title=Fern chair", f"image={shop.url}/a/1.jpg")
    said = project.run("new", "lamps", "--example", f"{shop.url}/item/1", *given, "--python")
    assert said.code == 0, said.err

    for n, image in ((4, f"{shop.url}/a/4.jpg"), (5, None)):
        found = project.run("check", "lamps", f"{shop.url}/item/{n}", "--callback", "item", "--json")
        (record,) = found.json["records"]
        assert (record["data"]["title"], record["data"].get("image")) == (NAMES[n], image)


def test_a_field_may_have_a_name_outside_ascii(project, shop):
    given = ("title=Fern chair", "größe=1.5")
    said = project.run("new", "lamps", "--example", f"{shop.url}/item/1", *given)

    assert said.code == 0, said.err
    (record,) = project.run("check", "lamps", f"{shop.url}/item/5", "--json").json["records"]
    assert (record["data"]["title"], record["data"]["größe"]) == ("Bark shelf", 5.5)


@pytest.mark.parametrize("given", [("area_m²=Fern chair",), ("fit=Fern chair", "ﬁt=Fern chair")])
def test_names_that_make_no_python_are_refused_and_nothing_is_written(project, shop, given):
    said = project.run("new", "lamps", "--example", f"{shop.url}/item/1", *given, "--python")
    assert said.code == 1
    assert "Traceback" not in said.err
    assert "in Python" in said.err
    assert not (project.folder / "spiders/lamps.py").exists()


def test_a_long_rule_is_folded_between_its_alternatives_only():
    places = [literal(f"p[title='black or white, or {at}'] {'b ' * 30}") for at in "ab"]
    code = tuple(f"page.css({place}).text or None" for place in places)
    fields = (PlanField(name="tone", type=FieldType.TEXT, code=code),
              PlanField(name="tint", type=FieldType.TEXT, code=code[:1]))  # fmt: skip
    plan = SpiderPlan(class_name="Tones", about="Tones.", start=("https://a.example/",), key="", fields=fields)

    tree = ast.parse(python_spider(plan))

    calls = (one for one in ast.walk(tree) if isinstance(one, ast.Call))
    (call,) = (one for one in calls if getattr(one.func, "id", "") == "TonesItem")
    shown = {one.arg: ast.unparse(one.value) for one in call.keywords}
    parts = [ast.unparse(ast.parse(one.removesuffix(" or None"), mode="eval")) for one in code]
    assert shown["tone"] == " or ".join(parts)
    assert shown["tint"] == f"{parts[0]} or None"


def test_python_goes_with_an_example(project, shop):
    said = project.run("new", "lamps", "--python")
    assert (said.code, "--python goes with --example" in said.err) == (1, True)


def test_values_belong_to_the_example_before_them():
    words = ["lamps", "--example", "https://a", "x=1", "y=2", "--example", "https://b?q=1", "x=3", "--deploy"]
    assert joined_examples(words) == [
        "lamps", "--example", f"https://a{SEPARATOR}x=1{SEPARATOR}y=2", "--example", f"https://b?q=1{SEPARATOR}x=3",
        "--deploy",
    ]  # fmt: skip
    assert [one.values for one in read_examples([[typed_url("https://a"), "x=1"]])] == [{"x": "1"}]


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("price", "49.90", FieldType.MONEY),
        ("was", "€49.90", FieldType.MONEY),
        ("sku", "12345", FieldType.TEXT),
        ("reviews", "17", FieldType.INT),
        ("rating", "4.5", FieldType.FLOAT),
        ("posted", "2024-03-04", FieldType.DAY),
        ("in_stock", "true", FieldType.BOOL),
        ("image", "https://a.example/x.jpg", FieldType.URL),
        ("title", "Desk lamp", FieldType.TEXT),
    ],
)
def test_the_type_of_a_field_follows_from_its_name_and_value(name, text, kind):
    assert type_of(name, [text]).type is kind
