"""Pages that are made to hurt a browser. They fail alone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from gossamer.errors import BadResponse, PageCrashed, TimedOut
from gossamer.fetch.browser import page_actions
from gossamer.fetch.browser.main_frame import MOST_MOVES
from gossamer.fetch.browser.page_actions import MAX_REQUESTS
from gossamer.fetch.browser.pool import Watch
from gossamer.fetch.contract import Limits
from gossamer.model.route import Action
from gossamer.units import Size
from tests.patience import PATIENCE, until
from tests.sites.hostile import Call, whole

from .showing import LIMITS, NAMES, Show, a_show, born_at, family, renderers, still_alive

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]
HASTY = Limits(total=timedelta(seconds=2))


async def test_a_page_asks_its_own_site_for_a_few_things_at_once_whatever_names_the_site_has(show: Show) -> None:
    under_way, most, together = 0, 0, asyncio.Event()

    async def slow(call: Call) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way >= 12:
            together.set()  # enough to know
        with suppress(TimeoutError):
            await asyncio.wait_for(together.wait(), 0.15)
        under_way -= 1
        await whole(call, b"x", kind="image/png")

    show.site.shown["/slow.png"] = slow
    pictures = "".join(f'<img src="{show.url("/slow.png", NAMES[n % 10])}?{n}">' for n in range(40))
    await show.get(show.page(pictures), block=(), limits=LIMITS)
    assert len(show.site.seen("/slow.png")) == 40
    assert 2 <= most <= 6


async def test_pages_that_never_end_are_timeouts_and_the_browser_goes_on(show: Show) -> None:
    await show.get(show.url("/rendered"))
    (process,) = show.transport.pool.processes
    pages = (show.get(show.url(path), limits=HASTY) for path in ("/loop", "/alerts", "/hang"))
    errors = await asyncio.gather(*pages, return_exceptions=True)
    assert [type(error) for error in errors] == [TimedOut] * 3
    assert b"Grace" in (await show.get(show.url("/rendered"))).body
    assert show.transport.pool.processes == (process,)


async def test_the_process_of_an_endless_script_is_ended(show: Show) -> None:
    busy: set[int] = set()
    enough = 4  # seconds
    while not busy:  # where cores are rare, the page's time may be over before its process is seen to be busy
        page = asyncio.create_task(show.get(show.url("/loop"), limits=Limits(total=timedelta(seconds=enough))))
        await until(lambda page=page: bool(show.site.seen("/loop")) or page.done(), "the page is in progress")
        (process,) = show.transport.pool.processes
        before = {pid: _ticks(pid) for pid in renderers(process.watchdog)}
        await until(
            lambda page=page, before=before, process=process: busy or page.done(),
            between=lambda before=before, process=process: busy.update(_busier(process.watchdog, before)),
        )
        known = {pid: born_at(pid) for pid in busy}
        with pytest.raises(TimedOut):
            await page
        enough *= 2
    await until(lambda: not still_alive(known), "that process is gone")


@pytest.mark.usefixtures("chromium")
async def test_pages_that_eat_memory_crash_alone() -> None:
    async with a_show(page_memory=Size(200 << 20)) as show:
        show.transport.pool.watch = Watch(every=0.2, patience=PATIENCE)
        over = asyncio.Event()

        async def answer_then(call: Call) -> None:
            await over.wait()
            await whole(call, b"")

        show.site.shown["/over"] = answer_then
        url = show.page("<p id=here></p><script>fetch('/over').then(() => here.className = 'over')</script>")
        neighbour = asyncio.create_task(show.get(url, wait_for=".over"))
        await until(lambda: bool(show.site.seen("/over")), "the neighbour is in progress")
        pages = (show.get(show.url(path), wait=60.0) for path in ("/eater", "/buffer-eater"))
        for error in await asyncio.gather(*pages, return_exceptions=True):
            assert isinstance(error, PageCrashed)
            assert "browser.page_memory" in str(error)
            assert error.reason == "page-crashed"
        over.set()
        assert b'class="over"' in (await neighbour).body
        assert len(show.transport.pool.processes) == 1


@pytest.mark.usefixtures("chromium")
async def test_a_browser_that_eats_memory_is_ended_and_so_is_the_page_that_did_it() -> None:
    """What a page keeps in the browser's own process belongs to no page that could be ended alone."""
    async with a_show(recycle_memory=Size(400 << 20)) as show:
        show.transport.pool.watch = Watch(every=0.1, patience=PATIENCE)
        blob = "new Blob([new Uint8Array(1e7).fill(i)])"
        eat = f"for (let i = 0; i < 150; i++) {{ k.push({blob}); await new Promise(done => setTimeout(done, 20)) }}"
        url = show.page(f"<script>const k = []; (async () => {{ {eat} }})()</script>")
        page = asyncio.create_task(show.get(url, wait=60.0))
        await until(lambda: bool(show.site.seen("/page")), "the page is in progress")
        (process,) = show.transport.pool.processes
        known = family(process.watchdog)
        with pytest.raises(PageCrashed, match="recycle_memory"):
            await page
        await until(lambda: not still_alive(known), "nothing is left of that browser")
        assert len(show.site.seen("/page")) == 1  # it is not given another to eat
        assert b"Grace" in (await show.get(show.url("/rendered"))).body


@pytest.mark.parametrize(
    "move",
    [
        "<script>location.reload()</script>",
        "<script>location = '/page?' + Math.random()</script>",
        "<meta http-equiv=refresh content=0>",
        "<body onload=\"location.replace('/page')\">",
        "<form id=f method=post action=/page></form><script>f.submit()</script>",
    ],
)
async def test_a_page_that_moves_on_without_end_is_read_where_it_is(show: Show, move: str) -> None:
    url = show.page(f"<p>here</p>{move}")
    show.forget()
    response = await show.get(url)
    assert b"<p>here</p>" in response.body
    assert response.unfinished == "it navigated again and again"
    assert len(show.site.seen("/page")) == 1 + MOST_MOVES


async def test_dialogs_windows_and_prompts_hold_nobody_up(show: Show) -> None:
    response = await show.get(show.url("/nuisance"))
    assert b'id="done"' in response.body
    (process,) = show.transport.pool.processes
    await until(lambda: not process.browser.contexts, "everything the page opened is closed")


async def test_a_window_that_no_click_has_asked_for_is_not_opened(show: Show) -> None:
    show.site.show("/window", "<p>another page")
    url = show.page(
        "<p id=here>here</p><a id=a href=/window target=_blank>x</a>"
        "<form id=f method=post target=_blank action=/window></form>"
        "<script>open('/window'); a.click(); f.submit()</script>"
    )
    response = await show.get(url, wait=0.3)
    assert b'id="here"' in response.body
    assert not show.site.seen("/window")


async def test_a_download_that_a_script_starts_is_not_taken(show: Show) -> None:
    show.site.show("/file", b"x" * 100, "Content-Disposition: attachment; filename=f.bin", kind="application/zip")
    url = show.page(
        "<p id=here>here</p><a id=a href=/file download>f</a><iframe src=/file></iframe><script>a.click()</script>"
    )
    response = await show.get(url)
    assert b'id="here"' in response.body
    assert response.note == f"refused the download of {show.url('/file')}"
    (process,) = show.transport.pool.processes
    assert not [file for file in process.folder.rglob("*") if file.is_file() and file.read_bytes() == b"x" * 100]


@pytest.mark.parametrize(
    "deed",
    ["location = '/file'", "document.forms[0].submit()", "location = 'mailto:ada@site.localhost'", "window.stop()"],
)
async def test_a_page_that_stops_itself_half_way_is_read_as_far_as_it_came(show: Show, deed: str) -> None:
    """A browser drops the rest of a page that moves on to a download, and never tells that it is there."""
    show.site.show("/file", b"x" * 100, "Content-Disposition: attachment; filename=f.bin", kind="application/zip")
    url = show.page(f"<p id=here>here</p><form action=/file></form><script>{deed}</script><p id=rest>rest</p>")
    for options in ({}, {"wait_until": "networkidle"}, {"wait_for": "#here", "actions": (Action(do="scroll"),)}):
        response = await show.get(url, **options)
        assert (b'id="here"' in response.body, b'id="rest"' in response.body) == (True, False)
        assert response.unfinished == "a script stopped it before it had loaded"
        assert ("refused the download" in response.note) == ("location = '/file'" in deed or "submit" in deed)


async def test_a_greedy_page_gets_so_much_and_no_more(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_actions, "_LONGEST_SETTLING", PATIENCE)  # all of its requests are seen
    response = await show.get(show.url("/greedy"))
    assert b'id="here"' in response.body
    assert f"more than {MAX_REQUESTS} requests" in response.note
    assert len(show.site.log) <= MAX_REQUESTS  # or hardly any: it may be stopped before they reach the site


async def test_a_page_that_never_stops_asking_is_stopped(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    """And read as it is then: nobody waits for it to become quiet."""
    monkeypatch.setattr(page_actions, "_LONGEST_SETTLING", PATIENCE)
    ask = "for (let i = 0; i < 200; i++) fetch('/data.json?' + i).catch(() => 0)"
    again = f"(async () => {{ for (;;) {{ {ask}; await new Promise(done => setTimeout(done)) }} }})()"
    url = show.page(f"<p id=here>here</p><script>{again}</script>")
    response = await show.get(url)
    assert b'id="here"' in response.body
    assert response.note == f"more than {MAX_REQUESTS} requests"
    with pytest.raises(PageCrashed, match=f"{MAX_REQUESTS} requests"):
        await show.get(url, wait_for="#never")
    assert b"Grace" in (await show.get(show.url("/rendered"))).body


async def test_headers_have_the_same_bounds_as_without_a_browser(show: Show) -> None:
    short = msgspec.structs.replace(LIMITS, max_header=1024)
    fields = (
        ("X-Long: " + "x" * 2000,),
        ("Set-Cookie: a=" + "x" * 2000,),
        tuple(f"X-{number}: 1" for number in range(200)),
    )
    for number, given in enumerate(fields):
        url = show.page("<p>long</p>", *given, path=f"/headers/{number}")
        limits = LIMITS if len(given) > 1 else short
        with pytest.raises(BadResponse):
            await show.get(url, limits=limits)
    assert (await show.get(show.page("<p>short</p>", "X-Long: " + "x" * 500), limits=short)).status == 200


async def test_a_picture_that_is_too_long_is_left_out(show: Show) -> None:
    limits = msgspec.structs.replace(LIMITS, max_body=1000)
    url = show.page("<p style='font-size: 99px'>picture</p>")
    response = await show.get(url, limits=limits, screenshot=True)
    assert (response.status, response.screenshot) == (200, b"")
    assert "more than 1000" in response.note
    assert (await show.get(url, screenshot=True)).screenshot.startswith(b"\x89PNG")


def _busier(watchdog: int, before: dict[int, int]) -> set[int]:
    """Renderers that have used a third of a second of the processor since `before`."""
    return {pid for pid in renderers(watchdog) if _ticks(pid) > before.get(pid, 0) + 33}


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])
