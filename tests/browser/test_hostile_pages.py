"""Pages that are made to hurt a browser. They fail alone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from gossamer.errors import PageCrashed, TimedOut
from gossamer.fetch.browser.page_work import MAX_REQUESTS
from gossamer.fetch.contract import Limits
from gossamer.measures import Size

from .showing import Show, a_show, born_at, renderers, still_alive, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
HASTY = Limits(total=timedelta(seconds=2))


@pytest.mark.parametrize("path", ["/loop", "/alerts", "/hang"])
async def test_a_page_that_never_ends_is_a_timeout_and_the_browser_goes_on(show: Show, path: str) -> None:
    await show.get(show.url("/rendered"))
    (cell,) = show.transport.pool.cells
    with pytest.raises(TimedOut):
        await show.get(show.url(path), limits=HASTY)
    assert b"Grace" in (await show.get(show.url("/rendered"))).body
    assert show.transport.pool.cells == (cell,)


async def test_the_process_of_an_endless_script_is_ended(show: Show) -> None:
    page = asyncio.create_task(show.get(show.url("/loop"), limits=Limits(total=timedelta(seconds=5))))
    await until(lambda: bool(show.site.seen("/loop")), "the page is in hand")
    (cell,) = show.transport.pool.cells
    before = {pid: _ticks(pid) for pid in renderers(cell.watchdog)}
    busy: set[int] = set()
    await until(lambda: bool(busy.update(_busier(cell.watchdog, before)) or busy), "a process is busy with it")
    known = {pid: born_at(pid) for pid in busy}
    with pytest.raises(TimedOut):
        await page
    await until(lambda: not still_alive(known), "that process is gone")


async def test_a_page_that_eats_memory_crashes_alone() -> None:
    async with a_show(page_memory=Size(200 << 20)) as show:
        neighbour = asyncio.create_task(show.get(show.url("/late"), wait_for="#late", wait=3.0))
        for path in ("/eater", "/buffer-eater"):
            with pytest.raises(PageCrashed, match=r"browser\.page_memory") as caught:
                await show.get(show.url(path), wait=60.0)
            assert caught.value.reason == "page-crashed"
        assert b'id="late"' in (await neighbour).body
        assert len(show.transport.pool.cells) == 1


async def test_dialogs_windows_and_prompts_hold_nobody_up(show: Show) -> None:
    response = await show.get(show.url("/nuisance"))
    assert b'id="done"' in response.body
    (cell,) = show.transport.pool.cells
    await until(lambda: not cell.browser.contexts, "everything the page opened is closed")


async def test_a_download_that_a_script_starts_is_not_taken(show: Show) -> None:
    show.site.show("/file", b"x" * 100, "Content-Disposition: attachment; filename=f.bin", kind="application/zip")
    url = show.page(
        "<p id=here>here</p><a id=a href=/file download>f</a><iframe src=/file></iframe><script>a.click()</script>"
    )
    response = await show.get(url)
    assert b'id="here"' in response.body
    (cell,) = show.transport.pool.cells
    assert not [file for file in cell.folder.rglob("*") if file.is_file() and file.read_bytes() == b"x" * 100]


async def test_a_greedy_page_gets_so_much_and_no_more(show: Show) -> None:
    response = await show.get(show.url("/greedy"))
    assert b'id="here"' in response.body
    assert f"more than {MAX_REQUESTS} requests" in response.note
    assert 1 < len(show.site.log) <= MAX_REQUESTS


def _busier(watchdog: int, before: dict[int, int]) -> set[int]:
    """Renderers that have used a third of a second of the processor since `before`."""
    return {pid for pid in renderers(watchdog) if _ticks(pid) > before.get(pid, 0) + 33}


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])
