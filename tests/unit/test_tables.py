"""Tables of a page as rows of texts: spans unfolded, tables in tables kept apart, tables for layout left out."""

from __future__ import annotations

import pytest

from gossamer.extract.tables import MOST_CELLS, MOST_COLUMNS, Table
from gossamer.parse.css import BadSelector

from .test_article import page_of


def one(table: str, *, layout: bool = False) -> Table:
    (found,) = page_of(table).tables(layout=layout)
    return found


def test_a_table_has_a_header_rows_and_a_caption() -> None:
    found = one(
        "<table><caption>Fish</caption><tr><th>name<th>price<tr><td> the <b>cod</b><td>3<tr><td>eel<td></table>"
    )

    assert found == Table(header=["name", "price"], rows=[["the cod", "3"], ["eel", ""]], caption="Fish")
    assert found.records() == [{"name": "the cod", "price": "3"}, {"name": "eel", "price": ""}]


def test_cells_that_span_stand_in_every_place_that_they_cover() -> None:
    found = one(
        """<table><tr><th rowspan=2>fish<th colspan=2>price<tr><th>low<th>high
        <tr><td rowspan=2>cod<td>1<td>2<tr><td colspan=2>sold</table>""",
    )

    assert found.rows == [["fish", "low", "high"], ["cod", "1", "2"], ["cod", "sold", "sold"]]


def test_a_head_of_two_rows_is_one_header() -> None:
    found = one(
        """<table><thead><tr><th rowspan=2>fish<th colspan=2>price<tr><th>low<th>high</thead>
        <tfoot><tr><td>sum<td>1<td>2</tfoot><tbody><tr><td>cod<td>1<td>2</tbody></table>"""
    )

    assert found.header == ["fish", "price low", "price high"]
    assert found.rows == [["cod", "1", "2"], ["sum", "1", "2"]]


def test_a_table_in_a_cell_is_a_table_of_its_own() -> None:
    inner = "<table><tr><th>x<th>y<tr><td>1<td>2</table>"
    outer, found = page_of(f"<table><tr><th>a<th>b<tr><td>cod {inner}<td>eel</table>").tables()

    assert outer.rows == [["cod", "eel"]]
    assert found.rows == [["1", "2"]]


def test_columns_without_a_name_or_with_the_same_one_can_be_told_apart() -> None:
    found = one("<table><tr><th>price<th><th>price<tr><td>1<td>2<td>3<td>4</table>")

    assert found.records() == [{"price": "1", "column_2": "2", "price_2": "3", "column_4": "4"}]


def test_rows_that_are_too_short_are_filled() -> None:
    assert one("<table><tr><td>a<td>b<tr><td>c<tr></table>").rows == [["a", "b"], ["c", ""]]


@pytest.mark.parametrize(
    "table",
    [
        "<table><tr><td>menu<td>text</table>",
        "<table><tr><td>menu<tr><td>text</table>",
        "<table role=presentation><tr><th>a<th>b<tr><td>c<td>d</table>",
        "<table><tr><td><h1>News</h1><td>b<tr><td>c<td>d</table>",
    ],
)
def test_tables_that_arrange_the_page_are_left_out_unless_asked_for(table: str) -> None:
    page = page_of(table)

    assert page.tables() == []
    assert len(page.tables(layout=True)) == 1


def test_a_selector_names_the_tables_or_what_is_around_them() -> None:
    row = "<tr><th>a<th>b<tr><td>1<td>2"
    page = page_of(f"<div id=x><table>{row}</table></div><table class=y>{row}<tr><td>3<td>4</table>")

    assert [len(found.rows) for found in page.tables()] == [1, 2]
    assert [len(found.rows) for found in page.tables("#x, #x table")] == [1]
    assert [len(found.rows) for found in page.tables("table.y")] == [2]
    assert page.tables("p") == []
    with pytest.raises(BadSelector):
        page.tables("table[")


def test_what_is_no_markup_has_no_tables() -> None:
    assert page_of("{}", content_type="application/json").tables() == []


@pytest.mark.parametrize(
    ("table", "rows", "columns"),
    [
        ("<tr><th colspan=1000000>a<th>b<tr><td rowspan=1000000>c<td>d", 1, MOST_COLUMNS),
        ("<tr><td rowspan=1000000>a<td>b<tr><td>c", 2, 2),
        ("<tr><td rowspan=0>a<td>b<tr><td>c<tr><td>d", 3, 2),
        ("<tr><td colspan=0 rowspan=-3>a<td colspan=x>b<tr><td>c<td>d", 2, 2),
        (f"<tr>{'<td rowspan=99999999999999>a' * 2000}{'<tr><td>b' * 2000}", MOST_CELLS // MOST_COLUMNS, MOST_COLUMNS),
        (f"<tr><td>a<td>b<tr><td>{'<b>' * 50_000}", 2, 2),
    ],
)
def test_a_table_that_lies_about_its_size_does_not_explode(table: str, rows: int, columns: int) -> None:
    found = one(f"<table>{table}</table>", layout=True)

    assert (len(found.rows), {len(row) for row in found.rows}) == (rows, {columns})
