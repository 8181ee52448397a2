"""`await gossamer.crawl(...)` inside a loop that belongs to somebody else."""

from __future__ import annotations

import asyncio
import importlib
import signal

import pytest

import gossamer
from gossamer.errors import Misconfigured
from tests.unit.commandline import project as project
from tests.unit.test_cli_check import SPIDER
from tests.unit.test_cli_fetch import site as site
from tests.unit.test_cli_recipes import shop as shop

QUICK = '[politeness]\nrate = "unlimited"\n'


async def test_a_crawl_in_a_running_loop_by_file_leaves_the_signals_alone(project, shop):
    project.write("gossamer.toml", QUICK)
    project.write("lamps.py", SPIDER.format(url=shop.url))
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    handlers: list[object] = []
    events: list[object] = []

    def listen(event: object) -> None:
        events.append(event)
        handlers.extend(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))

    report = await gossamer.crawl("lamps.py:Lamps", output="lamps.csv", on_event=listen)

    assert (report.ended, report.records) == (True, 1)  # six links to one and the same product
    assert (project.folder / "lamps.csv").read_text().startswith("title,price_amount,price_currency,")
    assert len(events) > 5
    assert set(handlers) == set(before)


async def test_a_crawl_that_is_cancelled_goes_on_later(project, shop):
    project.write("gossamer.toml", QUICK)
    project.write("lamps.py", SPIDER.format(url=shop.url))
    begun = asyncio.Event()
    crawling = asyncio.create_task(gossamer.crawl("lamps.py", on_event=lambda event: begun.set()))
    await begun.wait()
    crawling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await crawling

    report = await gossamer.crawl("lamps.py")

    assert (report.resumed, report.ended, report.records) == (True, True, 1)


async def test_what_a_listener_raises_is_told_once_and_stops_no_crawl(project, shop, caplog):
    project.write("gossamer.toml", QUICK)
    project.write("lamps.py", SPIDER.format(url=shop.url))

    def listen(event: object) -> None:
        raise LookupError("no bar to draw")

    report = await gossamer.crawl("lamps.py", on_event=listen)

    assert (report.ended, report.records) == (True, 1)
    assert [one.getMessage() for one in caplog.records if one.exc_info] == [
        "on_event failed for JobBegun; the crawl goes on."
    ]


async def test_run_takes_a_file_or_an_address_as_the_command_line_does(project, shop):
    project.write("gossamer.toml", QUICK)
    project.write("lamps.py", SPIDER.format(url=shop.url))

    by_file = await asyncio.to_thread(gossamer.run, "lamps.py", quiet=True)
    by_address = await asyncio.to_thread(gossamer.run, shop.url, quiet=True, limit=1)

    assert (by_file.records, by_address.records) == (1, 1)
    with pytest.raises(Misconfigured, match="None is not a spider"):
        await asyncio.to_thread(gossamer.run, None)


async def test_run_in_a_running_loop_names_what_to_write(project):
    with pytest.raises(Misconfigured, match=r"await gossamer.crawl\(\.\.\.\)") as told:
        gossamer.run("anything")
    assert "\n" not in str(told.value)
    with pytest.raises(Misconfigured, match="crawl\\(\\) has no option 'rat'"):
        await gossamer.crawl("lamps.py", rat="5/s")


def test_the_function_and_the_room_of_the_same_name_live_together():
    worker = importlib.import_module("gossamer.crawl.worker")
    assert callable(gossamer.crawl)
    assert worker.Worker.__module__ == "gossamer.crawl.worker"
