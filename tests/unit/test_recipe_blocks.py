"""Lists in many forms: the blocks that repeat are found, and a recipe drafted from the page takes what they show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gossamer.recipe.blocks import best_blocks
from gossamer.recipe.draft import draft_recipe
from gossamer.recipe.spider import check_page
from tests.unit.recipes import page_of, recipe

MENU = "<nav class='menu'>" + "".join(f"<a href='/c/{n}'>Shelf {n}</a>" for n in range(12)) + "</nav>"
LONG = "words that go on for a while"
HOME = "https://shop.example"

FORMS: dict[str, tuple[str, str, Callable[[int], str], int, dict[str, Any]]] = {
    "terms and meanings": (
        "<h1>Words</h1><dl>", "</dl>", lambda n: f"<dt>Term {n}</dt><dd>Meaning {n} of {LONG}</dd>",
        12, {"title": "Term 3", "text": f"Meaning 3 of {LONG}"},
    ),
    "terms with prices": (
        "<dl class=prices>", "</dl>", lambda n: f"<dt><a href=/p/{n}>Lamp {n}</a></dt><dd>€{n}9.00</dd>",
        12, {"title": "Lamp 3", "link": f"{HOME}/p/3", "price": "39.00 EUR"},
    ),
    "terms in boxes": (
        "<dl>", "</dl>", lambda n: f"<div><dt>Name {n}</dt><dd>Value {n} {LONG}</dd></div>",
        10, {"title": "Name 3", "text": f"Value 3 {LONG}"},
    ),
    "a list of definitions for each entry": (
        "", "",
        lambda n: f"<dl><dt>Name</dt><dd>Person {n}</dd><dt>Home town</dt><dd>Town {n % 2}</dd></dl>",
        8, {"name": "Person 3", "home_town": "Town 1"},
    ),
    "a virtual list": (
        "<div id=root><div class=sc-1a2b><div class=css-9z><div style='height:9000px'>", "</div></div></div></div>",
        lambda n: f"<div class='sc-{n}x9' style='position:absolute;top:{35 * n}px'><div class=c1{n}>"
        f"<a href=/r/{n}>Row {n}</a></div><div class=d{n}q>Person {n}</div><div class=d{n}q>${n}2.50</div></div>",
        14, {"title": "Row 3", "link": f"{HOME}/r/3", "part_2": "Person 3", "price": "32.50 USD"},
    ),
    "a virtual list far from any name": (
        "<div id=app>" + "<div class=css-1k2>" * 7, "</div>" * 8,
        lambda n: f"<div class=css-1x2 style='transform:translateY({35 * n}px)'><span>Row {n} {LONG}</span>"
        f"<span>P{n}</span></div>",
        14, {"part_1": f"Row 3 {LONG}", "part_2": "P3"},
    ),
    "rows by role": (
        "<div role=table><div role=rowgroup>", "</div></div>",
        lambda n: f"<div role=row><div role=cell>Cell {n}</div><div role=cell>Town {n}</div></div>",
        10, {"part_1": "Cell 3", "part_2": "Town 3"},
    ),
    "cells that stand for several rows": (
        "<table><tr><th>Country<th>Region<th>City<th>People</tr>", "</table>",
        lambda n: "<tr>" + (f"<td rowspan=4>Land {n // 4}" if n % 4 == 0 else "")
        + (f"<td rowspan=2>Part {n // 2}" if n % 2 == 0 else "") + f"<td>City {n}<td>{n}000</tr>",
        8, {"country": "Land 0", "region": "Part 1", "city": "City 3", "people": "3000"},
    ),
    "rows that begin with a head": (
        "<table><tr><th>Name<th>City<th>Age</tr>", "</table>",
        lambda n: f"<tr><th>Person {n}<td>Town {n}<td>{20 + n}</tr>",
        8, {"name": "Person 3", "city": "Town 3", "age": "23"},
    ),
    "cards in cards": (
        "<main>", "</main>",
        lambda n: f"<div class=card><h2><a href=/p/{n}>Thing {n}</a></h2><p>{LONG} {n}</p><div class=more>"
        f"<div class=card><a href=/q/{n}a>Side {n}</a></div></div></div>",
        6, {"title": "Thing 3", "link": f"{HOME}/p/3", "text": f"{LONG} 3"},
    ),
    "entries in entries": (
        "<ul>", "</ul>",
        lambda n: f"<li><a href=/c/{n}>Chapter {n}: {LONG}</a><ul><li>Part {n}.1</li><li>Part {n}.2</li></ul></li>",
        7, {"link": f"{HOME}/c/3", "title": f"Chapter 3: {LONG}"},
    ),
    "cells that share a class": (
        "<div class=list>", "</div>",
        lambda n: f"<div class='row entry'><div class='col name'><a href=/c/{n}>Car {n} {LONG}</a></div>"
        f"<div class='col price'>€{n}900</div><div class='col town'>Town {n % 2}</div></div>",
        8, {"name": f"Car 3 {LONG}", "link": f"{HOME}/c/3", "price": "3900 EUR", "town": "Town 1"},
    ),
    "parts in frames": (
        "<main>", "</main>",
        lambda n: f"<div class=card><div class=card-body><h5 class=css-1a>Thing {n}</h5><p class=by>Person {n}</p>"
        f"<b class=cost>${n}.50</b></div><button>{'Buy' if n % 2 else 'Ask'}</button></div>",
        8, {"title": "Thing 3", "by": "Person 3", "cost": "3.50 USD"},
    ),
    "names that say what is inside": (
        "<main>", "</main>",
        lambda n: f"<article data-testid=home><h2 data-testid=homeTitle class=hKzTyP>Flat {n} {LONG}</h2>"
        f"<ul data-testid=facts><li>{n} rooms<li>Floor {n % 3}</ul><time datetime=2026-01-1{n}>soon</time></article>",
        8, {"home_title": f"Flat 3 {LONG}", "facts": ["3 rooms", "Floor 0"], "time": "2026-01-13"},
    ),
    "two rows for each entry": (
        "<table>", "</table>",
        lambda n: f"<tr class=entry><td class=rank>{n}.<td class=head><a href=/i/{n}>Story {n} {LONG}</a></tr>"
        f"<tr><td><td class=below><b class=score>{n} points</b> by <a class=user href=/u/{n}>user {n}</a> | "
        f"<a href=/t/{n}>{n} comments</a></tr>",
        9, {"rank": "3.", "head": f"Story 3 {LONG}", "link": f"{HOME}/i/3"},
    ),
    "articles with advertisements between": (
        "<div class=grid>", "</div>",
        lambda n: f"<article><h3><a href=/a/{n}>News {n}</a></h3><p>{LONG} {n}</p></article>"
        + ("<article><iframe src=/ad></iframe><span>Ad</span></article>" if n % 4 == 1 else ""),
        10, {"title": "News 3", "link": f"{HOME}/a/3", "text": f"{LONG} 3"},
    ),
    "a first entry of another kind": (
        f"<ul class=list><li class=head>These are the best {LONG}</li>", "</ul>",
        lambda n: f"<li><a href=/a/{n}>Thing {n}</a><span class=price>${n}.99</span></li>",
        8, {"title": "Thing 3", "link": f"{HOME}/a/3", "price": "3.99 USD"},
    ),
    "a first entry that is larger": (
        "<div class=news>", "</div>",
        lambda n: f"<article class={'story' if n else 'lead'}><h{3 if n else 2}><a href=/a/{n}>News {n}</a></h3>"
        f"<img src=/{n}.jpg><p>{LONG} {n}</p></article>",
        9, {"link": f"{HOME}/a/3", "image": f"{HOME}/3.jpg", "text": f"{LONG} 3"},
    ),
    "headings with links, each with a text behind it": (
        "<main><h1>People</h1>", "</main>", lambda n: f"<h3><a href=/p/{n}>Person {n}</a></h3><p>{LONG} {n}</p>",
        8, {"title": "Person 3", "link": f"{HOME}/p/3", "text": f"{LONG} 3"},
    ),
    "paragraphs with links": (
        "<div id=content>", "</div>", lambda n: f"<p><a href=/f/{n}>Report {n}</a> - {n} pages</p>",
        9, {"link": f"{HOME}/f/3", "title": "Report 3", "text": "Report 3 - 3 pages"},
    ),
    "classes that say how a thing looks": (
        "<main class='container mx-auto'><div class='grid gap-4'>", "</div></main>",
        lambda n: "<div class='flex flex-col rounded-lg shadow'><div class=flex>"
        f"<h3 class='text-lg font-bold'>Lamp {n}</h3></div>"
        f"<div class='flex text-sm'>{LONG} {n}</div><div class='flex font-bold'>${n}9.00</div></div>",
        8, {"title": "Lamp 3", "part_2": f"{LONG} 3", "price": "39.00 USD"},
    ),
    "pictures": (
        "<div class=gallery>", "</div>",
        lambda n: f"<figure><img src=/{n}.jpg><figcaption>Picture {n} of {LONG}</figcaption></figure>",
        8, {"image": f"{HOME}/3.jpg", "text": f"Picture 3 of {LONG}"},
    ),
    "questions that fold out": (
        "<section>", "</section>",
        lambda n: f"<details><summary>Question {n}?</summary><p>Answer {n} {LONG}</p></details>",
        7, {"title": "Question 3?", "text": f"Answer 3 {LONG}"},
    ),
    "names for tests": (
        "<div class=css-1ab2>" * 12, "</div>" * 12,
        lambda n: f"<div data-testid=result-card class=x{n}y><h3 class=a{n}>Result {n}</h3><p>{LONG} {n}</p></div>",
        8, {"title": "Result 3", "text": f"{LONG} 3"},
    ),
    "properties": (
        "<div>" * 12, "</div>" * 12,
        lambda n: "<div itemscope itemtype='https://schema.org/Event'>"
        f"<span itemprop=name>Event {n}</span><span itemprop=location>Town {n}</span></div>",
        8, {"name": "Event 3", "location": "Town 3"},
    ),
    "lists in several boxes": (
        "<div><ul>", "</ul></div>",
        lambda n: f"<li><a href=/a/{n}>Thing {n}</a> <em>{LONG} {n}</em></li>"
        + ("</ul></div><div><ul>" if n == 4 else ""),
        10, {"link": f"{HOME}/a/3", "title": "Thing 3", "em": f"{LONG} 3"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_list_of_any_form_is_taken_whole(form: str) -> None:
    head, end, block, count, fourth = FORMS[form]
    page = page_of(MENU + head + "".join(map(block, range(count))) + end)

    draft = draft_recipe(page, [page_of("<title>Behind it</title>")], "list.toml")
    items = check_page(recipe(draft.text), "listing", page).items

    assert len(items) == count
    assert {name: _plain(getattr(items[3], name)) for name in fourth} == fourth


@pytest.mark.parametrize(
    "body",
    [
        "".join(f"<h2>Section {n}</h2><p>{LONG} {n}</p>" for n in range(6)),  # a text
        "".join(f"<p>{LONG} {n}, and <a href=/n/{n}>more</a></p><p>{LONG} {n}</p>" for n in range(4)),
        "<div id=cookie-consent>"
        + "".join(f"<div class=group><h4>Use {n}</h4><p>{LONG} {n}</p></div>" for n in range(5))
        + "</div>",
    ],
)
def test_what_reads_as_a_text_or_a_dialog_is_no_list(body: str) -> None:
    assert best_blocks(page_of(f"<main>{body}</main>")) is None


def _plain(value: Any) -> Any:
    return str(value) if value is not None and not isinstance(value, str | list) else value


def test_blocks_of_hundreds_of_parts_without_names_are_read_in_bounds() -> None:
    wide = "".join(f"<div>{''.join(f'<span>{n} {at}</span>' for at in range(1_000))}</div>" for n in range(60))

    assert best_blocks(page_of(f"<main>{wide}</main>")) is None  # each is longer than a block may be

    short = "".join(f"<div>{''.join(f'<i>{n}</i>' for _ in range(400))}</div>" for n in range(60))
    blocks = best_blocks(page_of(f"<main>{short}</main>"))
    assert blocks is None or len(blocks.fields) <= 9
