"""Lists are searched, sorted and paged; charts name their moments; all of it without a browser."""

from __future__ import annotations

import gzip
import secrets
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Collection
from typing import NamedTuple

import pytest
from starlette.requests import Request
from starlette.responses import Response

from gossamer.clock import VirtualClock
from gossamer.model.record import Attempt, PageResult, Record
from gossamer.project.access.keys import LOCAL, SCOPES, Caller
from gossamer.project.open import open_project
from gossamer.project.records import table as record_table
from gossamer.project.records.records import RecordFilter
from gossamer.project.records.table import rank_of, sorted_table
from gossamer.project.row_page import RowFilters, row_page
from gossamer.server.ui.charts import Series, hours, lane, lines
from gossamer.server.ui.forms import compressed, compressed_events, masked, unmasked
from gossamer.server.ui.live import RAREST, STREAMS_EACH, Hub, event_of, version_of
from gossamer.server.ui.overview import colours_of

from ..serving import settings_of

ADMIN = Caller(id=LOCAL, name=LOCAL, scopes=frozenset(SCOPES))


class Ship(NamedTuple):
    name: str
    crew: int | None


SHIPS = [Ship("Argo", 50), Ship("Beagle", None), Ship("Calypso", 27), Ship("Argus", 9)]
COLUMNS = {"name": lambda one: one.name, "crew": lambda one: one.crew}


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (RowFilters(), ["Argo", "Beagle", "Calypso", "Argus"]),
        (RowFilters(q="ARG"), ["Argo", "Argus"]),
        (RowFilters(q="arg 9"), ["Argus"]),
        (RowFilters(sort="crew"), ["Argus", "Calypso", "Argo", "Beagle"]),
        (RowFilters(sort="-crew"), ["Argo", "Calypso", "Argus", "Beagle"]),
        (RowFilters(sort="-name"), ["Calypso", "Beagle", "Argus", "Argo"]),
        (RowFilters(sort="sails"), ["Argo", "Beagle", "Calypso", "Argus"]),
        (RowFilters(sort="name", after=3), ["Calypso"]),
        (RowFilters(after=99), []),
    ],
)
def test_a_list_is_searched_and_sorted_and_what_has_no_value_is_last(wanted: RowFilters, names: list[str]) -> None:
    page = row_page(SHIPS, wanted, text=lambda one: f"{one.name} {one.crew}", columns=COLUMNS)
    assert [one.name for one in page.rows] == names


def test_pages_of_a_list_follow_each_other_to_its_end() -> None:
    shown, after, totals = [], 0, []
    while True:
        page = row_page(SHIPS, RowFilters(after=after), text=str, columns={}, limit=3)
        shown += page.rows
        totals.append(page.total)
        if page.next is None:
            break
        after = page.next
    assert (shown, totals) == (SHIPS, [4, 4])


def test_numbers_and_amounts_are_ranked_by_size_before_texts() -> None:
    values = ["b", 10**400, {"amount": "9.50", "currency": "EUR"}, 10, "A", {"amount": "n/a", "currency": "EUR"}, 2.5]
    assert sorted(values, key=rank_of) == [2.5, values[2], 10, 10**400, "A", "b", values[5]]


def ware(number: int, price: str | None) -> PageResult:
    url, at = f"https://shop.example/{number}", 1.8e9 + number
    money = f'{{"amount": "{price}", "currency": "EUR"}}' if price is not None else "null"
    record = Record(
        type="Ware", site="shop.example", key=str(number), url=url, job="shop-1", spider="shop",
        data=f'{{"price": {money}, "text": "{"x" * 1000}"}}', content_hash=number.to_bytes(16), scraped_at=at,
    )  # fmt: skip
    attempt = Attempt(
        at=at, job="shop-1", url=url, fingerprint=number.to_bytes(16), site="shop.example", worker="w", attempt=1,
        outcome="done", route="direct",
    )  # fmt: skip
    return PageResult(attempt=attempt, records=(record,))


@pytest.mark.asyncio
async def test_records_are_sorted_by_a_column_of_theirs_and_it_is_told_when_not_all_were_read(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_project(settings_of(tmp_path)) as project:
        prices = ["10.00", "9.00", None, "100.00", "0.50"]
        await project.records.save([ware(number, price) for number, price in enumerate(prices)])

        async def keys(column: str, *, after: int = 0, limit: int = 10) -> tuple[list[str], int | None, int | None]:
            table = await sorted_table(
                project, ADMIN, RecordFilter(), search=None, column=column, limit=limit, after=after
            )
            assert table.total == len(prices)
            return [row.key for row in table.rows], table.next, table.sorted_of

        assert await keys("price") == (["4", "1", "0", "3", "2"], None, None)
        assert await keys("-price") == (["3", "0", "1", "4", "2"], None, None)
        assert await keys("price", limit=2) == (["4", "1"], 2, None)
        assert await keys("price", limit=2, after=4) == (["2"], None, None)

        monkeypatch.setattr(record_table, "MOST_SORTED", 3)
        assert await keys("price") == (["4", "3", "2"], None, 3), "the newest three"


def test_a_short_chart_names_seconds_and_a_daily_one_days() -> None:
    few = lines("Pages", [1.8e9 + n for n in range(8)], [Series("pages", [float(n) for n in range(8)])])
    assert 'data-form="second"' in few
    assert "08:00:02" in few
    hourly = lines("Pages", [1.8e9 + n * 600 for n in range(8)], [Series("pages", [1.0] * 8)])
    assert 'data-form="clock"' in hourly
    daily = lines("Share", [86_400.0 * 20_000], [Series("share", [0.5])], unit="percent", daily=True)
    assert daily.count('data-form="day"') == 1
    assert "04 Oct" in daily


def test_a_value_that_holds_until_the_next_is_drawn_in_steps() -> None:
    times, series = [0.0, 60.0, 120.0], [Series("price", [10.0, 20.0, 20.0])]
    sloped, stepped = (lines("Price", times, series, stepped=how) for how in (False, True))
    assert sloped.count(",", sloped.index("points="), sloped.index('"/>', sloped.index("points="))) == 3
    points = stepped[stepped.index('points="') + 8 :].partition('"')[0].split()
    assert len(points) == 5
    assert points[0].partition(",")[2] == points[1].partition(",")[2], "level until the price changes"
    assert points[1].partition(",")[0] == points[2].partition(",")[0], "then straight up"


def test_lanes_of_a_calendar_have_a_mark_for_each_run_below_the_clock() -> None:
    drawn = lane("Runs of daily", [100.0, 50_000.0], 0.0, 86_400.0)
    assert drawn.count("<rect") == 2
    assert 'aria-label="Runs of daily: 2"' in drawn
    assert hours(0.0, 86_400.0).count("<text") == 8


@pytest.mark.asyncio
async def test_a_tab_that_was_let_go_and_asks_again_costs_no_rendering_and_is_shown_nothing_older_than_a_page() -> None:
    clock, made = VirtualClock(), list[int]()
    hub = Hub(clock)

    async def render(names: Collection[str]) -> dict[str, str]:
        made.append(1)
        return {"one": f"rendering {len(made)}"}

    async def holds() -> bool:
        return True

    async def look(seen: dict[str, str]) -> str:
        """What a tab is sent beyond the streams of its reader: it is let go at once."""
        events = hub.stream("view", render, ["one"], person="ada", seen=seen, holds=holds)
        return b"".join([event async for event in events]).decode()

    held = [hub.stream("other", render, ["one"], person="ada", seen={}, holds=holds) for _ in range(STREAMS_EACH)]
    for stream in held:
        await anext(stream)
    assert "rendering 1" in await look({})
    assert "rendering" not in await look({"one": version_of("rendering 1")})
    assert len(made) == 1
    hub.note("view", {"one": "a page"})
    assert "a page" in await look({"one": version_of("rendering 1")})
    assert len(made) == 1
    clock.advance(RAREST + 1)
    assert "rendering 2" in await look({"one": version_of("a page")})
    for stream in held:
        await stream.aclose()


@pytest.mark.asyncio
async def test_charts_are_rendered_less_often_than_the_rest_of_a_live_page() -> None:
    clock, made = VirtualClock(), Counter[str]()
    hub = Hub(clock)

    async def render(names: Collection[str]) -> dict[str, str]:
        made.update(names)
        return {name: f"{name} {made[name]}" for name in names}

    async def holds() -> bool:
        return True

    for _ in range(21):
        stream = hub.stream(
            "view", render, ["now", "charts"], person="ada", seen={}, holds=holds, slow={"charts": 10.0}
        )
        await anext(stream)
        sent = (await anext(stream)).decode()
        await stream.aclose()
        clock.advance(1.0)

    assert made == {"now": 21, "charts": 3}
    assert '"now 21"' in sent
    assert '"charts 3"' in sent


@pytest.mark.asyncio
async def test_a_region_that_hardly_changed_takes_few_bytes_and_arrives_at_once() -> None:
    rows = "".join(f"<tr><td>{secrets.token_hex(8)}</td></tr>" for _ in range(500))
    events = [event_of({"rows": rows.replace("<td>", f"<td>{n} ", 1)}, {"rows": str(n)}) for n in range(10)]

    async def stream() -> AsyncIterator[bytes]:
        for event in events:
            yield event

    unpacker, sizes = zlib.decompressobj(31), []
    async for piece in compressed_events(stream()):
        sizes.append(len(piece))
        assert unpacker.decompress(piece) in (*events, b"")

    assert len(sizes) == 11
    assert sizes[0] > 5_000  # the names are random
    assert max(sizes[1:]) < 300


@pytest.mark.parametrize(
    ("accepts", "packed"),
    [
        ("gzip, deflate, br", True),
        ("GZIP;q=0.5", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("x-gzip", False),
    ],
)
def test_a_page_is_compressed_for_who_takes_it(accepts: str, packed: bool) -> None:
    headers = [(b"accept-encoding", accepts.encode())] if accepts else []
    request = Request({"type": "http", "headers": headers})
    for size in (10, 5000):
        response = compressed(request, Response("x" * size))
        body = gzip.decompress(response.body) if "content-encoding" in response.headers else response.body
        assert (body, response.headers["vary"]) == (b"x" * size, "accept-encoding")
        assert ("content-encoding" in response.headers) is (packed and size > 1000)
        assert response.headers["content-length"] == str(len(response.body))


def test_a_form_token_looks_different_on_every_page() -> None:
    token = "ab" * 32
    shown = {masked(token) for _ in range(20)}
    assert len(shown) == 20
    assert {unmasked(one) for one in shown} == {token}
    assert not any(token in one for one in shown)
    assert [unmasked(text) for text in ("", "a", "zz", "é", "ff")] == [""] * 5


def test_a_reason_has_the_same_colour_whatever_else_is_on_the_chart() -> None:
    assert colours_of(["parse", "timeout", "http-503"]) == {"parse": "c", "timeout": "b", "http-503": "bad"}
    assert colours_of(["http-503", "parse"])["parse"] == "c"
    assert colours_of(["http-503", "http-500"]) == {"http-503": "bad again", "http-500": "bad"}
