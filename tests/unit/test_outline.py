"""The outline of a page: its texts with labels and names, for a person who chooses values."""

from __future__ import annotations

import tomllib

import pytest

from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, PageFacts, PageResult
from gossamer.project.access.keys import OWNER
from gossamer.project.jobs.api_requests import BadRequest
from gossamer.project.open import open_project
from gossamer.project.pages.outline import MOST_LIKE, page_outline, read_fields, recipe_here
from gossamer.project.pages.results import PageReader
from gossamer.recipe.induction.outline import MOST_ROWS, outline_of
from gossamer.settings import load
from tests.unit.recipes import page_of

LAMP = """<title>Lamp · Shop</title><nav><a href=/>Home</a></nav><main><h1>Moss lamp</h1><p class=price>€40.50</p>
<dl><dt>Article</dt><dd>LIT-1</dd></dl><p><b>Colour:</b> green</p><img src="/a/lamp.jpg">
<script>let x = 'hidden'</script>
<script type="application/ld+json">{"@type": "Product", "name": "Moss lamp", "gtin": "4006381333931"}</script></main>"""


def test_the_texts_of_a_page_have_names_and_labels():
    rows = {row.text: row for row in outline_of(page_of(LAMP)).rows}

    assert {text: row.name for text, row in rows.items()} | {"Article": ""} == {
        "Moss lamp": "title", "€40.50": "price", "Article": "", "LIT-1": "article", "Colour:": rows["Colour:"].name,
        "green": "colour", "/a/lamp.jpg": "image", "Home": rows["Home"].name, "4006381333931": "gtin",
    }  # fmt: skip
    assert (rows["LIT-1"].label, rows["green"].label) == ("Article", "Colour")
    assert [row.text for row in rows.values() if row.data] == ["4006381333931"]  # what no visitor sees


def test_menus_come_last():
    texts = [row.text for row in outline_of(page_of(LAMP)).rows if not row.data]

    assert (texts[0], texts.index("Home") > texts.index("green")) == ("Moss lamp", True)


def test_a_page_of_ten_thousand_texts_is_shown_in_part():
    found = outline_of(page_of("".join(f"<p>text {n}</p>" for n in range(10_000))))

    assert (len(found.rows), found.more) == (MOST_ROWS, True)


@pytest.mark.parametrize("body", ["", "<p></p>", "just text", "{}"])
def test_a_page_with_hardly_anything_has_hardly_any_rows(body):
    assert len(outline_of(page_of(body)).rows) <= 1


@pytest.mark.parametrize("text", ["2.100.12", "10.234.56", "192.168.1.1", "1,234,5", "v 1.2.3", "1.234.567,89"])
def test_a_text_with_several_points_is_a_row_like_others(text):
    (row,) = outline_of(page_of(f"<main><p>{text}</p></main>")).rows
    assert row.text == text


def test_chosen_values_are_lines():
    assert read_fields("title = Moss lamp\n\n price= 4 = 5 \n") == {"title": "Moss lamp", "price": "4 = 5"}


MANY = "\n".join(f"field_{n} = x" for n in range(31))


@pytest.mark.parametrize("text", ["", "title", "= x", "Title = x", "title =", MANY])
def test_lines_that_choose_nothing_are_refused(text):
    with pytest.raises(BadRequest):
        read_fields(text)


URL = "https://lamps.example/item/{}"


@pytest.fixture
async def archive(tmp_path):
    """A project, and what stores a copy of a page in it."""
    async with open_project(load(start=tmp_path, environ={})) as project:

        async def store(n: int, body: str, *, at: float = 0.0, failure: str = "") -> None:
            url, at = URL.format(n), at or project.clock.now()
            page = Snapshot(
                url=url, requested_url=url, status=200, headers=Headers((("content-type", "text/html"),)),
                body=body.encode(), fetched_at=at, job="lamps-1",
            )  # fmt: skip
            (ref,) = await project.archive.put([page])
            told = {"url": url, "job": "lamps-1", "status": 200, "fingerprint": project.rules.fingerprint(url)}
            facts = PageFacts(**told, fetched_at=at, archive_ref=ref, spider="lamps", failure=failure)
            attempt = Attempt(**told, at=at, site="lamps.example", worker="w", attempt=1, outcome="done")
            await project.records.save([PageResult(attempt=attempt, page=facts)])

        yield project, store


async def test_the_newest_copy_that_did_not_fail_is_shown(archive):
    project, store = archive
    await store(1, "<h1>Moss lamp</h1>", at=1_000.0)
    await store(1, "<h1>Try again later</h1>", at=2_000.0, failure="http-503")
    await store(2, "<h1>Only a fault</h1>", at=2_000.0, failure="http-503")

    async with PageReader(project) as pages:
        titles = [await page_outline(project, pages, OWNER, URL.format(n)) for n in (1, 2)]

    assert [[row.text for row in one.rows] for one in titles if one] == [["Moss lamp"], ["Only a fault"]]


async def test_rules_are_tried_on_a_few_of_many_like_pages_of_which_not_each_job_is_looked_up(archive, monkeypatch):
    project, store = archive
    for n in range(MOST_LIKE + 10):
        await store(n, f"<h1>Lamp {n}</h1><dl><dt>Größe</dt><dd>{n} cm</dd></dl>")
    asked = []

    async with PageReader(project) as pages:
        may_read = pages.may_read

        async def counted(caller, copy):
            asked.append(copy.job)
            return await may_read(caller, copy)

        monkeypatch.setattr(pages, "may_read", counted)
        found = await recipe_here(project, pages, OWNER, URL.format(1), "title = Lamp 1\ngröße = 1 cm")

    assert (found.tried, asked) == (5, ["lamps-1"])
    assert "tried on 5 other pages." in found.recipe
    assert set(tomllib.loads(found.recipe)["pages"]["item"]["fields"]) == {"title", "größe"}


async def test_one_other_page_is_one_page(archive):
    project, store = archive
    for n in (1, 2):
        await store(n, f"<h1>Lamp {n}</h1>")
    async with PageReader(project) as pages:
        found = await recipe_here(project, pages, OWNER, URL.format(1), "title = Lamp 1")
    assert "tried on 1 other page." in found.recipe
