"""Incidents and groups of dead letters: over HTTP, on the command line, in messages, in backups."""

from __future__ import annotations

import asyncio
import gc
import re
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from gossamer.cli.app import app
from gossamer.errors import BackendUnavailable
from gossamer.frontier.contract import DeadFilter, JobTerms
from gossamer.model.alert import AlertTerms, Finding, Notice
from gossamer.model.incident import Subject, SubjectKind
from gossamer.model.outcome import JobOutcome, Outcome, Reason
from gossamer.monitor.alerts import look
from gossamer.project.access.keys import OWNER, Caller
from gossamer.project.alerts.channels import slack_text, text_of
from gossamer.project.alerts.incidents import IncidentId, show_incident
from gossamer.project.alerts.repairs import RepairFacts, repairs_for
from gossamer.project.dead_letters.dead_letters import DeadLetterChoice, list_letters, purge_letters, replay_letters
from gossamer.project.jobs.notes import NewNote, add_note
from gossamer.project.jobs.overview import ended_badly, work_now
from gossamer.project.open import Project
from gossamer.server.ui.views import ACTIONS, VIEWS
from gossamer.settings.alert_tables import ChannelTable
from gossamer.settings.overrides import PACE
from tests.unit.commandline import candidate

from .serving import serving, settings_of

SITE = "shop.example"
START = f"https://{SITE}/"
FOUND = {"success": {SITE: Finding(0.02, "2% of 244 requests succeeded.")}}


async def fire(project: Project, found: dict[str, dict[str, Finding]] = FOUND) -> Notice:
    state = project.state
    term = await state.ticks.lead("far/1/x", timedelta(seconds=600))
    assert term is not None
    step = look(
        dict.fromkeys(found, AlertTerms(wait=timedelta(0))),
        found,
        [],
        channels={"hook": ChannelTable(kind="webhook")},
        now=project.clock.now(),
    )
    await state.alerts.settle(term, step)
    return step.notices[0]


async def bury(project: Project, messages: list[str], name: str = "books", reason: str = "timeout") -> str:
    job, _ = await project.state.jobs.open_job(name, JobTerms(), fresh=False)
    await project.state.frontier.add(job.id, [candidate(f"https://{SITE}/{n}") for n in range(len(messages))])
    await project.state.jobs.seal_seeds(job.id)
    left = list(messages)
    while left:
        for lease in (await project.state.frontier.lease(job.id, "w", len(left))).leases:
            await project.state.frontier.bury(lease, reason, left.pop())
    return job.id


async def test_an_incident_is_seen_with_metrics_and_closed_by_admins_alone(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        notice = await fire(door.project)
        id = notice.subjects[0].incident
        await bury(door.project, ["no answer within 30 s"] * 3)
        await add_note(door.project, OWNER, NewNote(text="asked the provider", incident=id))
        looker = await door.new_key("looker", "metrics")
        other = await door.new_key("other", "scrape", "jobs", "records")

        (listed,) = (await door.get("/api/v1/incidents", looker)).json()
        assert (listed["id"], listed["kind"], listed["subject"], listed["state"]) == (id, "site", SITE, "open")
        assert (await door.get("/api/v1/incidents", looker, kind="pool")).json() == []
        assert (await door.get("/api/v1/incidents", looker, state="ended")).json() == []
        assert (await door.get("/api/v1/incidents", other)).status_code == 403
        assert (await door.get("/api/v1/incidents/none")).status_code == 404
        both = await door.new_key("both", "metrics", "jobs")
        assert [(hit["kind"], hit["name"]) for hit in (await door.get("/api/v1/search", both, q=id)).json()] == [
            ("incident", id)
        ]
        assert (await door.get("/api/v1/search", other, q=id)).json() == []
        seen = (await door.get(f"/api/v1/incidents/{id}", looker)).json()
        assert seen["failures"] is None  # the addresses of all jobs are for admins
        whole = (await door.get(f"/api/v1/incidents/{id}")).json()
        assert [(group["count"], len(group["examples"])) for group in whole["failures"]["groups"]] == [(3, 3)]
        assert [told["channel"] for told in whole["told"]] == ["hook"]
        assert any("asked the provider" in done["words"] for done in whole["done"])
        assert f"gossamer dead replay --domain {SITE}" in [one["command"] for one in whole["repairs"]]

        assert (await door.post(f"/api/v1/incidents/{id}/close", {}, looker)).status_code == 403
        closed = await door.post(f"/api/v1/incidents/{id}/close", {"reason": "they moved"})
        assert (closed.status_code, closed.json()["state"]) == (201, "closing")
        assert (await door.get("/api/v1/incidents")).json()[0]["state"] == "closing"
        audit = (await door.get("/api/v1/audit")).json()
        assert (f"POST /api/v1/incidents/{id}/close", id) in [(line["action"], line["target"]) for line in audit]


async def test_what_cannot_be_read_says_so_and_nothing_is_begun_for_a_reader_who_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    async def away(*_: object) -> None:
        raise BackendUnavailable("the state is away")

    async def left(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    async with serving(settings_of(tmp_path), worker=False) as door:
        asked = IncidentId(id=(await fire(door.project)).subjects[0].incident)
        with monkeypatch.context() as patched:
            patched.setattr(type(door.project.state.audit), "lines", away)
            shown = await show_incident(door.project, OWNER, asked)
        assert [one.words for one in (*shown.changes, *shown.done)] == ["Not known: the state is away"] * 2

        monkeypatch.setattr(door.project.records, "attempt_log", left)
        with pytest.raises(asyncio.CancelledError):
            await show_incident(door.project, OWNER, asked)
        gc.collect()
    assert [str(one.message) for one in recwarn if "never awaited" in str(one.message)] == []


async def test_what_was_set_for_another_site_is_no_news_of_an_incident(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        asked = IncidentId(id=(await fire(door.project)).subjects[0].incident)
        for key in (f"domains.{SITE}.rate", "domains.other.example.rate", "politeness.rate"):
            assert (await door.post("/api/v1/overrides", {"key": key, "value": "6/m"})).status_code == 201
        done = [one.words for one in (await show_incident(door.project, OWNER, asked)).done]
        assert [words.partition("hand: ")[2].partition(" =")[0] for words in done] == [
            "politeness.rate", f"domains.{SITE}.rate",
        ]  # fmt: skip


async def test_the_incident_of_a_spider_knows_its_runs_whoever_began_them(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path, START), worker=False) as door:
        key = await door.new_key("ada", "scrape", "jobs", "records")
        job = (await door.post("/api/v1/crawls", {"spider": "things"}, key)).json()["job_id"]
        await door.project.state.frontier.add(job, [candidate(f"{START}{number}") for number in range(3)])
        for reason, message in (
            ("parse", "title is missing"),
            ("http-404", "answered 404"),
            ("http-404", "answered 404"),
        ):
            (lease,) = (await door.project.state.frontier.lease(job, "w", 1)).leases
            await door.project.state.frontier.bury(lease, reason, f"Thing: {message}")
        later = (
            await door.post(
                "/api/v1/crawls", {"spider": "things"}, await door.new_key("bob", "scrape", "jobs", "records")
            )
        ).json()

        found = {"dead-letters": {SITE: Finding(120.0, "many", cause=Subject(SubjectKind.SPIDER, "things"))}}
        id = (await fire(door.project, found)).subjects[0].incident
        seen = (await door.get(f"/api/v1/incidents/{id}")).json()
        assert later["job_id"] != job
        (parsed,) = await door.project.state.queue.dead(DeadFilter(job=job, reason="parse"), 5)
        look_at, parse_again, try_again, *_ = seen["repairs"]
        assert look_at["page"] == f"/ui/dead/{job}/{parsed.id}"  # not one that does not exist
        assert parse_again["fields"] == {"job": job, "reason": "parse"}
        assert (try_again["command"], seen["selects"]) == (f"gossamer dead replay --job {job}", {"job": job})
        assert [group["count"] for group in seen["failures"]["groups"]] == [2, 1]

        begun = next(one for one in seen["changes"] if one["page"] == f"/ui/jobs/{job}")
        assert begun["words"] == f"ada began {job}"


async def test_what_is_set_by_hand_for_a_budget_or_a_pool_is_taken_back_where_it_was_set(tmp_path: Path) -> None:
    pool = {"urls": ["http://192.0.2.7:8080"]}
    async with serving(settings_of(tmp_path, router__budget_day=20, proxies__homes=pool), worker=False) as door:
        set_by_hand = {
            "router.budget_day": "40",
            "proxies.homes.skip.http://192.0.2.7:8080": "yes",
            "log.level": "debug",
        }
        for key, value in set_by_hand.items():
            assert (await door.post("/api/v1/overrides", {"key": key, "value": value})).status_code == 201
        taken = []
        for alert, kind, name in (("budget", SubjectKind.BUDGET, "day"), ("proxies", SubjectKind.POOL, "homes")):
            notice = await fire(door.project, {alert: {name: Finding(1.0, "all", cause=Subject(kind, name))}})
            seen = (await door.get(f"/api/v1/incidents/{notice.subjects[0].incident}")).json()
            taken.append([one["fields"]["key"] for one in seen["repairs"] if one["action"] == "/ui/overrides/remove"])
        assert taken == [["router.budget_day"], ["proxies.homes.skip.http://192.0.2.7:8080"]]


async def test_a_site_that_refuses_is_sent_by_any_route_that_the_settings_name(tmp_path: Path) -> None:
    flags = {"router__ladder": ["direct"], "proxies__homes": {"urls": ["http://192.0.2.7:8080"]}}
    words = []
    for more in ({}, {"routes__homes": {"pool": "homes"}}):
        (tmp_path / str(len(more))).mkdir()
        async with serving(settings_of(tmp_path / str(len(more)), **flags, **more), worker=False) as door:
            await bury(door.project, ["answered 403"], reason="http-403", name=f"books{len(more)}")
            id = (await fire(door.project)).subjects[0].incident
            repairs = (await door.get(f"/api/v1/incidents/{id}")).json()["repairs"]
            words.append({"no other route" if "no other route" in one["words"] else one["words"] for one in repairs})
    without, having = words
    assert "no other route" in without - having
    assert "Always take the route homes" in having - without


async def test_the_incident_of_a_job_that_stands_still_says_what_its_pages_wait_for(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        frontier, jobs = door.project.state.frontier, door.project.state.jobs
        job, _ = await jobs.open_job("books", JobTerms(), fresh=False)
        await frontier.add(job.id, [candidate(START)])
        (lease,) = (await frontier.lease(job.id, "w", 1)).leases
        await frontier.release(lease, timedelta(minutes=5), reason="proxies-rest")
        id = (await fire(door.project, {"stalled": {job.id: Finding(900.0, "no progress")}})).subjects[0].incident
        first = (await door.get(f"/api/v1/incidents/{id}")).json()["repairs"][0]
        assert first["words"].startswith("See where 1 page waits for a proxy: all proxies of its pool rest; next try")
        assert first["page"] == f"/ui/queue?job={job.id}"


async def test_every_message_has_the_address_of_its_incident(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    async with serving(settings, worker=False) as door:
        notice = await fire(door.project)
    id = notice.subjects[0].incident
    assert f"gossamer incident show {id}" in text_of(notice, settings)
    assert "http" not in text_of(notice, settings)
    server = msgspec.structs.replace(settings.server, public_url="https://scrape.example/")
    public = msgspec.structs.replace(settings, server=server)
    for text in (text_of(notice, public), slack_text(notice, public)):
        assert f"https://scrape.example/ui/incidents/{id}" in text


async def test_a_group_of_dead_letters_is_listed_replayed_and_purged_and_no_other(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        project = door.project
        one = await bury(project, [f"no answer within {n} s" for n in range(5)] + ["connection reset"] * 2)
        two = await bury(project, ["no answer within 77 s", "the name does not resolve"], "others")
        page = await list_letters(project, DeadLetterChoice(), limit=100)
        assert page.failures is not None
        groups = {group.message: group for group in page.failures.groups}
        slow = next(group for words, group in groups.items() if "no answer" in words)
        reset = next(group for words, group in groups.items() if "reset" in words)
        assert (slow.count, reset.count) == (6, 2)

        found = (await door.get("/api/v1/dead-letters", group=slow.key)).json()
        assert found["total"] == 6
        assert {letter["job"] for letter in found["dead_letters"]} <= {one, two}
        dry = await door.post("/api/v1/dead-letters/replay", {"group": slow.key, "dry_run": True})
        assert dry.json()["dead_letters" if "dead_letters" in dry.json() else "letters"] == 6

        assert await purge_letters(project, DeadLetterChoice(group=reset.key, job=one)) == 2
        done = await replay_letters(project, DeadLetterChoice(group=slow.key))
        assert done.queued == {one: 5, two: 1}
        left = [letter async for letter in project.state.queue.letters(DeadFilter())]
        assert [letter.message for letter in left] == ["the name does not resolve"]
        assert (await list_letters(project, DeadLetterChoice(group=slow.key), limit=10)).total == 0


async def test_pages_of_a_group_follow_one_another(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        await bury(door.project, [f"no answer within {n} s" for n in range(7)] + ["connection reset"] * 3)
        page = await list_letters(door.project, DeadLetterChoice(), limit=100)
        assert page.failures is not None
        key = page.failures.groups[0].key
        seen: list[int] = []
        after: str | None = None
        while True:
            part = await list_letters(door.project, DeadLetterChoice(group=key), limit=2, after=after)
            seen += [letter.id for letter in part.dead_letters]
            after = part.next
            if after is None:
                break
        assert len(set(seen)) == 7


def test_a_site_that_refuses_its_only_route_wants_another_and_has_none_to_forget() -> None:
    about, probe = Subject(SubjectKind.SITE, SITE), f"gossamer fetch https://{SITE}/ --route browser"
    first, *others = repairs_for(RepairFacts(about=about, routes=("direct",), probe=probe))
    assert (first.command, "no other route" in first.words) == (probe, True)
    assert "Forget its learned route" not in {one.words for one in others}
    assert "Forget its learned route" in {one.words for one in repairs_for(RepairFacts(about=about, learned=True))}


@pytest.mark.parametrize("kind", SubjectKind)
def test_every_repair_is_a_button_a_page_or_a_command_that_exists(kind: SubjectKind) -> None:
    facts = RepairFacts(
        about=Subject(kind, "shop-3"),
        dead_letters=4,
        parsed=3,
        reason="parse",
        example="/ui/dead/shop-3/7",
        jobs=("shop-3",),
        running=("shop-3",),
        overridden=(f"domains.shop-3.{PACE[0]}", "domains.shop-3.route"),
        missing=("far/1/x",),
        probe="gossamer fetch https://shop.example/ --route browser",
        learned=True,
    )
    idle = msgspec.structs.replace(facts, running=())
    places = [re.compile(re.sub(r"{\w+}", "[^/]+", one.path)) for one in (*ACTIONS, *VIEWS)]
    for repair in (*repairs_for(facts), *repairs_for(idle)):
        address = repair.action or repair.page.partition("?")[0]
        assert address or repair.command
        assert not address or any(place.fullmatch(address) for place in places), address
        if repair.command:
            words = repair.command.split()[1:]
            verb = [word for word in words if word.isalpha() and word not in ("shop",)][:2]
            shown = CliRunner().invoke(app, [*verb, "--help"])
            assert shown.exit_code == 0, (repair.command, shown.output)


async def test_the_overview_names_runs_that_ended_badly_and_open_incidents(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        project = door.project
        await fire(project)
        for name, outcome in (("bad", Outcome.EMPTY), ("good", Outcome.DONE)):
            job, _ = await project.state.jobs.open_job(name, JobTerms(), fresh=False)
            await project.state.jobs.seal_seeds(job.id)
            assert await project.state.jobs.close_job(job.id, "done", JobOutcome(outcome, (Reason("r", "no record"),)))
        other = Caller(id="k1", name="other", scopes=frozenset({"jobs"}))
        for caller in (OWNER, other):
            assert [one.name for one in await ended_badly(project, caller)] == ["bad"]
        assert (await work_now(project, OWNER)).incidents == 1
        assert (await work_now(project, other)).incidents is None
