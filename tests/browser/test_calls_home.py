"""Chromium itself calls nobody: what it asks its maker's servers, for itself or about a page, does not leave."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gossamer.fetch.browser import guard
from gossamer.fetch.browser.chromium import Family, family_of
from gossamer.fetch.browser.guard_dialer import Dialer
from tests.patience import until

from .showing import HOST, a_show

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("chromium")]

FORM = (
    "<form><input name=user autocomplete=username><input type=password name=word><input type=email name=m></form>"
    "<script>fetch('/silence')</script>"  # stands for as long as the page does: whoever looks now and then sees it
)
WATCHED = 20.0  # seconds; what is asked about a form is asked within the first two


def remote_ends(others: Family) -> set[str]:
    """Where sockets of the browser's processes lead, as the kernel has it: TCP that stands, and UDP that is bound to a
    far end. `others` are processes of ours that were there before, the servers of other tests for instance."""
    inodes, ends = set(), set()
    for pid in family_of(os.getpid()).keys() - others.keys():
        with suppress(OSError):  # it has ended
            links = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()]
            inodes |= {link[8:-1] for link in links if link.startswith("socket:")}
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and not fields[2].endswith(":0000"):
                ends.add(f"{table} {fields[2]}")
    return ends


async def test_nobody_is_called_but_the_site_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[str] = []
    dialled: set[str] = set()
    read_head, dial = guard.read_head, Dialer.dial

    async def noted_head(reader: asyncio.StreamReader) -> Any:
        line, headers = await read_head(reader)
        heads.append(line.split(" ")[1])
        return line, headers

    async def noted_dial(self: Dialer, host: str, *rest: Any, **more: Any) -> Any:
        dialled.add(host)
        return await dial(self, host, *rest, **more)

    monkeypatch.setattr(guard, "read_head", noted_head)
    monkeypatch.setattr(Dialer, "dial", noted_dial)
    others = family_of(os.getpid())
    async with a_show() as show:
        ends: set[str] = set()
        asking = asyncio.create_task(show.get(show.page(FORM), wait=WATCHED / 2))
        end = time.monotonic() + WATCHED

        async def watch() -> None:
            ends.update(await asyncio.to_thread(remote_ends, others))

        await until(lambda: time.monotonic() >= end and asking.done(), between=watch, every=0.2)
        assert b"<form>" in (await asking).body
        port = show.transport._gate.port
    assert dialled == {HOST}
    assert {end.split(" ")[0] for end in ends} <= {"tcp"}
    assert {int(end.rpartition(":")[2], 16) for end in ends} == {port}
    assert any("google" in head for head in heads), "this Chromium asks nobody: the test proves nothing"
