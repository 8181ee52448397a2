"""No process outlives its worker, and a browser that dies or hangs is replaced. The process table is counted."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gossamer.errors import BrowserFailed, Misconfigured
from gossamer.fetch.browser.pool import BrowserProcess, Watch
from gossamer.fetch.browser.transport import BrowserTransport
from gossamer.process.signals import send
from gossamer.settings.tables import Browser
from gossamer.units import Size
from tests.patience import PATIENCE, until
from tests.sites.hostile import Call, HostileSite, hostile_site, whole
from tests.sites.rendered import dress

from .showing import GUARD, HOST, Show, a_show, driver_and_browser, family, marked, renderers, still_alive

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("chromium"), pytest.mark.long]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def secret() -> Iterator[str]:
    """Something in the environment of this process, before any browser of this module is started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOSSAMER_TEST_SECRET", "s3cret-w0rd")
        yield "s3cret-w0rd"


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short name: Chromium puts a socket below it, and names of sockets have 108 letters at most."""
    with tempfile.TemporaryDirectory(prefix="gossamer-test-", dir="/tmp") as folder:
        yield Path(folder)


@asynccontextmanager
async def a_worker(folder: Path, *options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, HostileSite]]:
    """A worker with two browsers, each with a page in progress. `folder` is in the environment of all its processes."""
    async with hostile_site() as site:
        dress(site, "http://canary.invalid/")
        url = site.url("/late", HOST)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.browser.worker", url, *options, cwd=ROOT,
            env={**os.environ, "TMPDIR": str(folder)}, start_new_session=True,
        )  # fmt: skip
        try:
            await until(lambda: len(site.seen("/late")) == 2, "both browsers show their page")
            yield process, site
        finally:
            send(process, signal.SIGKILL)
            await process.wait()


@pytest.mark.parametrize(
    ("number", "options"),
    [(signal.SIGKILL, ()), (signal.SIGTERM, ()), (signal.SIGTERM, ("drain",)), (signal.SIGINT, ())],
    ids=["killed", "ended", "drained", "interrupted"],
)
async def test_a_worker_that_ends_leaves_no_process_and_no_file(
    short_folder: Path, number: int, options: tuple[str, ...]
) -> None:
    async with a_worker(short_folder, *options) as (process, _):
        known = family(process.pid)
        assert len(marked(str(short_folder))) >= 8  # worker, two watchdogs, two drivers, two browsers and their helpers
        send(process, number)
        await process.wait()
        await until(lambda: not still_alive(known), "all of its processes are gone")
        await until(lambda: not marked(str(short_folder)), "no process carries its mark")
        await until(lambda: not list(short_folder.glob("gossamer-browser-*")), "its folders are gone")


async def test_a_worker_that_stands_still_and_is_killed_leaves_nothing(short_folder: Path) -> None:
    """The driver is stopped too, so that it cannot close its browser by itself."""
    async with a_worker(short_folder) as (process, _):
        known = family(process.pid)
        for folder in short_folder.glob("gossamer-browser-*"):
            driver, _ = driver_and_browser(int((folder / "watchdog.pid").read_text()))
            os.kill(driver, signal.SIGSTOP)
        send(process, signal.SIGKILL)
        await until(lambda: not still_alive(known), "all of its processes are gone")


async def test_a_watchdog_that_is_killed_takes_all_with_it(show: Show) -> None:
    await show.get(show.url("/rendered"))
    (process,) = show.transport.pool.processes
    known = family(process.watchdog)
    os.kill(process.watchdog, signal.SIGKILL)
    await until(lambda: not still_alive(known), "driver and browser are gone")
    assert (await show.get(show.url("/rendered"))).status == 200


async def test_a_browser_that_stands_still_does_not_outlive_its_watchdog(show: Show) -> None:
    """It cannot see that its driver is gone. Nobody asks for a page meanwhile."""
    await show.get(show.url("/rendered"))
    (process,) = show.transport.pool.processes
    known = family(process.watchdog)
    os.kill(driver_and_browser(process.watchdog)[1], signal.SIGSTOP)
    os.kill(process.watchdog, signal.SIGKILL)
    await until(lambda: not still_alive(known), "driver and browser are gone")


@pytest.mark.parametrize("stand_still", [False, True], ids=["running", "standing still"])
async def test_the_next_worker_clears_what_a_killed_worker_and_its_watchdogs_left(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch, stand_still: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))
    async with a_worker(short_folder) as (process, _):
        known = family(process.pid)
        left = sorted(short_folder.glob("gossamer-browser-*"))
        watchdogs = [int((folder / "watchdog.pid").read_text()) for folder in left]
        async with BrowserTransport(GUARD, Browser()):  # somebody starts while the worker is at work
            assert sorted(short_folder.glob("gossamer-browser-*")) == left
            assert still_alive(known) == list(known)
        send(process, signal.SIGSTOP)  # else it would end its browsers itself
        for watchdog in watchdogs:
            if stand_still:
                os.kill(driver_and_browser(watchdog)[1], signal.SIGSTOP)
            os.kill(watchdog, signal.SIGKILL)
        send(process, signal.SIGKILL)
        await process.wait()
    assert sorted(short_folder.glob("gossamer-browser-*")) == left
    async with BrowserTransport(GUARD, Browser()):
        assert not list(short_folder.glob("gossamer-browser-*"))
        await until(lambda: not still_alive(known), "all of its processes are gone")


async def test_a_driver_that_is_killed_leaves_no_error_of_the_library_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    process = await BrowserProcess.start(Browser(), "http://127.0.0.1:9")
    os.kill(driver_and_browser(process.watchdog)[0], signal.SIGKILL)
    await process.gone.wait()
    await process.kill("it is over")
    del process
    gc.collect()
    assert caplog.text == ""


@pytest.mark.parametrize("victim", ["driver", "browser"])
async def test_a_page_whose_browser_is_killed_is_shown_by_another(show: Show, victim: str) -> None:
    page = asyncio.create_task(show.get(ready_the_second_time(show), wait_for="#ready"))
    await until(lambda: len(show.site.seen("/twice")) == 1, "the page is in progress")
    (first,) = show.transport.pool.processes
    known = family(first.watchdog)
    os.kill(driver_and_browser(first.watchdog)[victim == "browser"], signal.SIGKILL)
    response = await page
    assert b'id="ready"' in response.body
    assert first not in show.transport.pool.processes
    await until(lambda: not still_alive(known), "nothing is left of the first browser")
    assert len(show.site.seen("/twice")) == 2


async def test_a_page_that_loses_two_browsers_has_used_up_no_try(show: Show) -> None:
    page = asyncio.create_task(show.get(show.url("/late"), wait_for="#never"))
    for times in (1, 2):
        await until(lambda times=times: len(show.site.seen("/late")) == times, "the page is in progress")  # type: ignore[misc]
        process = show.transport.pool.processes[-1]
        os.kill(driver_and_browser(process.watchdog)[1], signal.SIGKILL)
    with pytest.raises(BrowserFailed):
        await page
    assert (await show.get(show.url("/rendered"))).status == 200


async def test_a_browser_that_hangs_is_killed_and_replaced(show: Show) -> None:
    page = asyncio.create_task(show.get(ready_the_second_time(show), wait_for="#ready"))
    await until(lambda: len(show.site.seen("/twice")) == 1, "the page is in progress")
    (first,) = show.transport.pool.processes
    known = family(first.watchdog)
    first.watch = Watch(every=0.2, asks=1, patience=0.5)
    os.kill(driver_and_browser(first.watchdog)[1], signal.SIGSTOP)
    await until(first.gone.is_set, "it is given up")
    assert "did not answer for 0.5 s" in first.why_gone
    assert b'id="ready"' in (await page).body
    await until(lambda: not still_alive(known), "nothing is left of the first browser")


async def test_a_worn_browser_is_replaced_and_its_pages_are_not_cut_off() -> None:
    async with a_show(recycle_pages=2, contexts=2) as show:
        slow = asyncio.create_task(show.get(show.url("/late"), wait_for="#late"))
        await until(lambda: len(show.site.seen("/late")) == 1, "the slow page is in progress")
        (first,) = show.transport.pool.processes
        await show.get(show.url("/rendered"))  # its second and last page
        await show.get(show.url("/rendered"))  # already in another browser
        assert not slow.done() or slow.result().status == 200
        assert b'id="late"' in (await slow).body
        await until(lambda: _all_gone(first), "the worn browser is closed")
        assert len(show.transport.pool.processes) == 1
        assert show.transport.pool.processes[0] is not first
    assert len(show.site.seen("/late")) == 1


async def test_a_browser_that_holds_too_much_memory_is_replaced() -> None:
    async with a_show(recycle_memory=Size(1 << 20)) as show:
        show.transport.pool.watch = Watch(every=0.1, patience=PATIENCE)
        page = asyncio.create_task(show.get(show.url("/rendered")))
        await until(lambda: bool(show.site.seen("/rendered")), "the page is in progress")
        (first,) = show.transport.pool.processes
        assert (await page).status == 200
        await until(lambda: first.worn, "it was seen to hold more")
        assert (await show.get(show.url("/rendered"))).status == 200
        assert first not in show.transport.pool.processes


async def test_pages_share_browsers_and_wait_for_seats() -> None:
    async with a_show(browsers=2, contexts=2) as show:
        most = 0

        async def one() -> None:
            nonlocal most
            await show.get(show.url("/rendered"))
            most = max(most, sum(process.in_progress for process in show.transport.pool.processes))

        assert show.transport.pool.processes == ()  # none before the first page
        await asyncio.gather(*(one() for _ in range(6)))
        assert len(show.transport.pool.processes) == 2
        assert 1 <= most <= 4
        assert [process.in_progress for process in show.transport.pool.processes] == [0, 0]
        assert not [context for process in show.transport.pool.processes for context in process.browser.contexts]


async def test_secrets_of_the_worker_are_not_seen_by_the_browser(show: Show, secret: str) -> None:
    page = asyncio.create_task(show.get(show.url("/late"), wait_for="#never"))  # it is there for as long as we look
    await until(lambda: bool(show.site.seen("/late")), "the page is in progress")
    (process,) = show.transport.pool.processes
    assert secret.encode() in Path(f"/proc/{process.watchdog}/environ").read_bytes()  # it keeps it to itself
    driver, browser = driver_and_browser(process.watchdog)
    shown_by = renderers(process.watchdog)
    assert shown_by
    for pid in (driver, browser, *shown_by):
        assert secret.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    page.cancel()
    await asyncio.wait([page])


async def test_what_is_missing_is_said_before_anything_is_tried() -> None:
    wrong = (
        ("executable", Browser(executable="/no/such/browser")),
        ("block", Browser(block=("pictures",))),
        ("browsers", Browser(browsers=0)),
    )
    for key, settings in wrong:
        with pytest.raises(Misconfigured, match=rf"browser\.{key}"):
            async with BrowserTransport(GUARD, settings):
                pass


async def test_a_browser_that_cannot_start_is_our_failure_and_leaves_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho no display >&2\nexit 1\n")
    broken.chmod(0o755)
    async with a_show(executable=str(broken)) as show:
        before = family(os.getpid())
        with pytest.raises(BrowserFailed, match="could not be started"):
            await show.get(show.url("/rendered"))
        assert show.transport.pool.processes == ()
        await until(lambda: family(os.getpid()).keys() <= before.keys(), "nothing is left of the try")


@pytest.mark.parametrize(
    "log",
    [
        "Zygote process exited prematurely with exit code -1",
        'Check failed: sys_chroot("/proc/self/fdinfo/") == 0\nFATAL: Failed to receive hello message from zygote',
    ],
)
async def test_a_browser_without_its_sandbox_says_what_to_do(tmp_path: Path, log: str) -> None:
    broken = tmp_path / "chromium"
    broken.write_text(f"#!/bin/sh\necho '{log}' >&2\nexit 1\n")
    broken.chmod(0o755)
    async with a_show(executable=str(broken)) as show:
        with pytest.raises(Misconfigured, match=r"chromium-seccomp\.json"):
            await show.get(show.url("/rendered"))


def ready_the_second_time(show: Show) -> str:
    """The address of a page whose first visit goes on for ever."""

    async def reply(call: Call) -> None:
        await whole(call, b"<p id=ready>ready</p>" if len(show.site.seen("/twice")) > 1 else b"<p>not yet</p>")

    show.site.shown["/twice"] = reply
    return show.url("/twice")


def _all_gone(process: BrowserProcess) -> bool:
    return not process.folder.exists() and not family(process.watchdog)
