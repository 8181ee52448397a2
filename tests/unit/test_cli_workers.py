"""What `gossamer workers` says below its table."""

from __future__ import annotations

import msgspec
import pytest

from gossamer.cli.workers import _print_workers
from gossamer.clock import iso_time
from gossamer.project.workers.workers import WorkerView

NOW = 1_900_000_000.0
BUSY = WorkerView(
    name="here/1/a", host="here", pid=1, version="0.1.0", started_at=iso_time(NOW - 60), seen_at=iso_time(NOW),
    job="shop-1", state="working", in_flight=1, done=7, cpu=0.1, memory=1, pace=2.0, busy=0.1, serves="",
    clock_ahead=0.0, waiting=0, missing=False, fate="",
)  # fmt: skip


def said(capsys: pytest.CaptureFixture[str], *workers: WorkerView) -> str:
    _print_workers(list(workers), NOW)
    return " ".join(capsys.readouterr().err.split())


def test_a_worker_that_was_killed_is_dead_whenever_its_last_heartbeat_was(capsys: pytest.CaptureFixture[str]) -> None:
    dead = msgspec.structs.replace(BUSY, missing=True, fate="dead")
    silent = msgspec.structs.replace(dead, fate="silent")
    assert said(capsys, dead) == "1 worker is dead. Pages in flight go back to the queue by themselves."
    assert said(capsys, silent, silent) == "2 workers sent no heartbeat for 20 s."


def test_a_worker_to_which_others_leave_no_page_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    idle = msgspec.structs.replace(BUSY, pid=2, in_flight=0, pace=0.0)
    assert said(capsys, BUSY, idle).startswith(
        "here/2 has no page of shop-1: other workers have them. The rate of a site"
    )
    assert said(capsys, BUSY) == ""
    assert said(capsys, BUSY, msgspec.structs.replace(idle, job="other-1")) == ""
