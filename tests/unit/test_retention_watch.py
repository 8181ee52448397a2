"""The retention of the settings: carried out when it is due, with a measure of the disks and files that shrink."""

from __future__ import annotations

import os
import random
from datetime import timedelta

import msgspec
import pytest

from gossamer.access.contract import AuditLine
from gossamer.errors import Permanent
from gossamer.frontier.contract import JobTerms
from gossamer.model.alert_rules import disk
from gossamer.model.alert_table import USUAL
from gossamer.model.disk import DiskSample
from gossamer.model.job import REPARSE
from gossamer.model.page import Headers, Snapshot
from gossamer.model.situation import DiskReading, Situation
from gossamer.model.task import UrlState
from gossamer.project.open import open_project
from gossamer.project.upkeep.disk import disks, full_at, growth, kind_of
from gossamer.project.upkeep.retention import drop_copies, in_words, keep_retention
from tests.conformance.frontiers import candidate
from tests.conformance.stores import page_of, result, tried
from tests.journey.crawling import settings_for
from tests.services.valkey import running_valkey

DAY = 86_400.0


@pytest.fixture(params=["sqlite", "valkey"])
def where(request):
    if request.param == "sqlite":
        yield {}
        return
    with running_valkey("--appendonly", "no") as server:
        yield {"state": server.address(), "project": "retention"}


async def a_line(project, at):
    line = AuditLine(at=at, key="k", name="n", action="POST /x", target="", status=200, address="")
    await project.state.audit.note(line)


async def test_what_is_older_than_the_settings_allow_goes_when_it_is_time_and_the_rest_stays(tmp_path, where):
    settings = settings_for(tmp_path, retention__audit="2d", **where)
    async with open_project(settings) as project:
        now = project.clock.now()
        for age in (5.0, 3.0, 1.0):
            await a_line(project, now - age * DAY)
        pruned = await keep_retention(project)
        assert pruned.audit == 2
        assert len(await project.state.audit.lines(10)) == 1

        await a_line(project, now - 9 * DAY)
        assert await keep_retention(project) is None  # it was carried out just now
        assert len(await project.state.audit.lines(10)) == 2


async def test_of_each_page_so_many_raw_copies_stay_as_the_settings_say_and_those_that_are_needed(tmp_path, where):
    settings = settings_for(tmp_path, retention__copies=2, **where)
    url = "https://shop.example/1"
    async with open_project(settings) as project:
        now, refs, fingerprint = project.clock.now(), {}, project.rules.fingerprint(url)
        names = ["plain", "with a letter", "of a key", "running", "old", "older", "new", "newest"]
        for place, name in enumerate(names):
            owner = "a key" if name == "of a key" else ""
            job, _ = await project.state.jobs.open_job(name, JobTerms(owner=owner), fresh=True)
            await project.state.frontier.add(job.id, [msgspec.structs.replace(candidate(url), fingerprint=fingerprint)])
            if name != "running":
                (lease,) = (await project.state.frontier.lease(job.id, "w", 1)).leases
                await (
                    project.state.frontier.bury(lease, "selector", "")
                    if name == "with a letter"
                    else project.state.frontier.complete(lease, UrlState.DONE)
                )
                await project.state.jobs.close_job(job.id, "done")
            at = now - (len(names) - place) * DAY
            body = random.Random(place).randbytes(50_000)
            snapshot = Snapshot(url=url, requested_url=url, status=200, headers=Headers(()), body=body, fetched_at=at)
            (refs[name],) = await project.archive.put([snapshot])
            facts = {"archive_ref": refs[name], "job": job.id, "spider": "books", "fingerprint": fingerprint}
            page = page_of(url, at=at, **facts)
            attempt = tried(url, at=at, job=job.id, fingerprint=page.fingerprint)
            await project.records.save([result(page=page, attempt=attempt)])
        before = await project.archive.size()
        again, _ = await project.state.jobs.open_job("reparse", JobTerms(spider=REPARSE), fresh=True)
        assert await drop_copies(project, 1) == (0, 0)  # it may read any of them
        await project.state.jobs.close_job(again.id, "done")
        pruned = await keep_retention(project)
        came = dict(zip(refs, await project.archive.get_many(list(refs.values())), strict=True))
        assert [name for name, page in came.items() if isinstance(page, Permanent)] == ["plain", "old", "older"]
        assert (pruned.copies, in_words(pruned)[:12]) == (3, "3 raw copies")
        assert await project.archive.size() == before - pruned.copy_bytes < before - 100_000
        gone = ("plain", "old", "older")
        visits = await project.records.visits(project.rules.fingerprint(url))
        assert [one.archive_ref for one in visits] == [ref for name, ref in refs.items() if name not in gone]


async def test_without_a_table_nothing_is_deleted_and_the_disks_are_measured_all_the_same(tmp_path, where):
    async with open_project(settings_for(tmp_path, **where)) as project:
        await a_line(project, project.clock.now() - 999 * DAY)
        pruned = await keep_retention(project)
        assert (pruned.audit, pruned.attempts, pruned.page_bytes, pruned.jobs) == (None, None, None, None)
        assert len(await project.state.audit.lines(10)) == 1
        found = {one.store: one for one in await disks(project)}
        assert found["records"].bytes > 0
        assert 0 < found["archive"].free <= found["archive"].total
        assert found["records"].measured_at is not None
        assert found["state"].free is None if where else found["state"].free > 0


async def test_sqlite_files_shrink_after_something_was_deleted(tmp_path):
    settings = settings_for(tmp_path, retention__audit="2d", retention__shrink="1s")
    async with open_project(settings) as project:
        now = project.clock.now()
        for number in range(3000):
            what = {"action": "x", "target": str(number), "status": 200, "address": ""}
            line = AuditLine(at=now - 5 * DAY, key="k", name="n" * 300, **what)
            await project.state.audit.note(line)
        file = tmp_path / "gossamer-data" / "state.db"
        await project.state.durable()
        before = sum(one.stat().st_size for one in file.parent.glob("state.db*"))
        assert (await keep_retention(project)).audit == 3000
        assert sum(one.stat().st_size for one in file.parent.glob("state.db*")) < before / 2
        assert await project.state.audit.lines(1) == []


async def test_growth_and_the_day_on_which_the_disk_is_full_are_told_from_the_samples(tmp_path):
    samples = [DiskSample(at=day * DAY, bytes={"records": 1000 + 100 * day}) for day in range(5)]
    assert growth(samples, "records") == pytest.approx(100.0)
    assert growth(samples, "archive") is None
    assert growth(samples[:1], "records") is None
    assert full_at(0.0, 1000, 100.0) == pytest.approx(10 * DAY)
    assert full_at(0.0, 1000, -5.0) is None

    async with open_project(settings_for(tmp_path)) as project:
        now, kind = project.clock.now(), kind_of(project)
        free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
        for ago, held in ((2 * DAY, 0), (0.0, free)):
            sample = DiskSample(at=now - ago, bytes={"records": held})
            await project.state.shelf.commit([kind.put(str(sample.at), sample, at=sample.at)])
        (records,) = [one for one in await disks(project) if one.store == "records"]
        assert records.per_day == pytest.approx(free / 2, rel=0.01)
        assert records.full_at is not None


def test_the_alert_fires_when_little_is_free_or_when_it_will_be_full_soon():
    def fires(free, full_in):
        reading = DiskReading(store="records", free=free, full_in=full_in, words="it fills up")
        return bool(disk(Situation(disks=(reading,)), USUAL["disk"]))

    assert fires(0.05, None)
    assert fires(0.9, timedelta(days=2).total_seconds())
    assert not fires(0.5, None)
    assert not fires(0.5, timedelta(days=9).total_seconds())
    assert disk(Situation(), USUAL["disk"]) is None
