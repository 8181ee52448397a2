"""Texts of strangers stored as titles, addresses, errors, names and fields: every view shows them as text. Nothing of
them runs, asks for anything, or turns the page around."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from html import unescape
from urllib.parse import quote, urlencode

import pytest
import pytest_asyncio
from playwright.async_api import Dialog, Page, expect

from gossamer.access.contract import ApiKey, AuditLine, Callback, CallbackState
from gossamer.frontier.contract import DeadFilter, JobTerms, WorkerCard
from gossamer.model.alert import AlertChange, AlertState, Notice, NoticeSubject, Severity, Silence, Standing
from gossamer.model.incident import Closing, Incident, IncidentAlert, Subject, SubjectKind
from gossamer.model.override import Override
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, PageFacts, PageResult, Record
from gossamer.model.route import ProxyOutcome
from gossamer.model.schedule import Schedule, Term
from gossamer.model.task import Candidate
from gossamer.model.url import shape_of
from gossamer.project.access.keys import ROLES, add_key
from gossamer.project.access.sign_in import SignIns
from gossamer.project.live_settings import kind_of
from gossamer.project.open import Project
from gossamer.routing.contract import LearnedRoute
from gossamer.routing.proxies.contract import ProxyReport, RestTerms
from gossamer.schedule.alert_book import AlertStep
from gossamer.server.ui.sign_in import COOKIE
from gossamer.server.ui.views import ACTIONS, VIEWS

from .screen import Screen, a_screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]

CORPUS = (
    "<script>window.ran = 1</script>",
    '"><img src=x onerror="window.ran = 1">',
    "'><svg/onload=window.ran=1>",
    "</title></pre></textarea><iframe src='http://evil.example/'></iframe>",
    "{{7*7}} {% raw %} ${7*7} #{7*7}",
    "javascript:window.ran=1",
    "<a href='javascript:window.ran=1' autofocus onfocus=window.ran=1>x</a>",
    "<meta http-equiv=refresh content='0;url=http://evil.example/'>",
    "<form action=http://evil.example/><input name=csrf></form>",
    "<style>body{background:url(http://evil.example/)}</style>",
    "turned \u202e around \u2066 and \u200f back \u2069",
    "bell \x07 escape \x1b[31m nul \0 delete \x7f",
    "line\u2028separator\u2029here",
)
TURNS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200f\u200e\x07\x1b\x7f\0"
EVERYTHING = " ".join(CORPUS)


async def fill(project: Project) -> tuple[str, int]:
    """Hostile texts in every place that a stranger can write to; the job and the number of one dead letter."""
    state, now = project.state, project.clock.now()
    for n, text in enumerate(CORPUS):
        job, _ = await state.jobs.open_job(text, JobTerms(), fresh=False)
        url = f"http://evil{n}.example/{quote(text, safe='<>{}()=;*$#')}"
        key = project.rules.fingerprint(url)
        candidate = Candidate(
            url=url, fingerprint=key, site=f"evil{n}.example", shape=shape_of("http://x.example/"), kind=text
        )
        await state.frontier.add(job.id, [candidate])
        (lease,) = (await state.frontier.lease(job.id, text, 1)).leases
        snapshot = Snapshot(
            url=url, requested_url=url, status=200, headers=Headers([("Content-Type", "text/html")]),
            body=f"<html><body>{EVERYTHING}</body></html>".encode(), fetched_at=now, job=job.id,
        )  # fmt: skip
        (ref,) = await project.archive.put([snapshot])
        attempt = Attempt(
            at=now + n, job=job.id, url=url, fingerprint=key, site=f"evil{n}.example", worker=text, attempt=1,
            outcome="retry", route=text, proxy=text, reason=text, error=EVERYTHING,
        )  # fmt: skip
        record = Record(
            type=text, site=f"evil{n}.example", key=text, url=url, job=job.id, spider=text,
            data=f'{{"title": {json.dumps(EVERYTHING)}, {json.dumps(text)}: 1}}', content_hash=bytes([n]) * 16,
            scraped_at=now,
        )  # fmt: skip
        facts = PageFacts(
            fingerprint=key, url=url, job=job.id, fetched_at=now, status=200, archive_ref=ref, spider=text
        )
        await project.records.save([PageResult(attempt=attempt, page=facts, records=(record,))])
        await state.frontier.bury(lease, text, EVERYTHING)
        open_url = Candidate(
            url=f"{url}?open", fingerprint=project.rules.fingerprint(f"{url}?open"), site=f"evil{n}.example", shape="/"
        )
        await state.frontier.add(job.id, [open_url])
        await state.workers.beat(
            WorkerCard(name=f"{text}/1/{n}", host=text, pid=n, version=text, started_at=now, seen_at=now, job=text)
        )
        await state.routes.learn(
            LearnedRoute(
                site=f"evil{n}.example", pattern=text, route=text, since=now, reason=text, blocks=1, recheck_at=0.0,
                patience=1.0,
            ),
            instead_of=None,
        )  # fmt: skip
        await name_everything(project, text, n, job.id)
    await fire(project)
    job_id = (await state.jobs.jobs())[0].id
    letter = (await state.queue.dead(DeadFilter(job=job_id), 1))[0]
    return job_id, letter.id


async def name_everything(project: Project, text: str, n: int, job: str) -> None:
    """What is named, written or reported by people and programs, and not by pages."""
    state, now = project.state, project.clock.now()
    await state.schedules.put(
        Schedule(name=text, spider=text, trigger="every 6h", arguments=(text,), windows=text), origin="added"
    )
    await state.keys.add(ApiKey(id=f"evil{n}", name=text, digest="00", scopes=("jobs",), created_at=now))
    line = AuditLine(at=now, key=f"evil{n}", name=text, action=text, target=text, status=200, address=text)
    await state.audit.note(line)
    sent = Callback(id=f"msg_{n}", owner="", url=text, made_at=now, job=job, state=CallbackState.FAILED, message=text)
    await state.callbacks.keep(sent)
    key = f"domains.evil{n}.example.rate"
    row = Override(key=key, value="1/m", at=now, by=text, reason=text)
    await state.shelf.commit([kind_of(state).put(key, row, at=now)])
    await state.proxies.report("city", [ProxyReport(proxy=text, outcome=ProxyOutcome.BANNED, words=text)], RestTerms())
    await state.alerts.silence(
        Silence(id=f"s{n}", alert=text, subject=text, until=now + 3600, reason=text, made_at=now, made_by=text)
    )


async def fire(project: Project) -> None:
    now = project.clock.now()
    term = await project.state.ticks.lead("test", timedelta(minutes=5))
    assert isinstance(term, Term)
    standings, notices, changes = [], [], []
    for n, text in enumerate(CORPUS):
        standings.append(
            Standing(alert=text, subject=text, state=AlertState.FIRING, since=now, began_at=now, words=text, value=1.0)
        )
        notices.append(
            Notice(
                id=f"n{n}", channel=text, alert=text, state_told=AlertState.FIRING, severity=Severity.INFO,
                subjects=(NoticeSubject(subject=text, words=text, value=1.0, since=now),), count=1, made_at=now,
                error=text,
            )
        )  # fmt: skip
        changes.append(
            AlertChange(
                at=now, alert=text, subject=text, state=AlertState.FIRING, words=text, severity=Severity.INFO
            )
        )  # fmt: skip
    incidents = []
    for n, text in enumerate(CORPUS):
        alert = IncidentAlert(alert=text, subject=text, words=text, severity="info", since=now, mark=text)
        about = Subject(SubjectKind.SITE if n % 2 else SubjectKind.SPIDER, text)
        incidents.append(Incident(id=f"evil-{n}", about=about, since=now, opened_at=now, alerts=(alert,)))
        await project.state.alerts.close_incident(Closing(incident=f"evil-{n}", by=text, at=now, reason=text))
    step = AlertStep(
        standings=tuple(standings), notices=tuple(notices), changes=tuple(changes), incidents=tuple(incidents)
    )
    await project.state.alerts.settle(term, step)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def screen(chromium: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Screen]:
    """A project whose pools and channels have such names."""
    folder = tmp_path_factory.mktemp("project")
    names = [json.dumps(text).replace("\x7f", "\\u007f") for text in CORPUS]
    tables = [f'[channels.{name}]\nkind = "webhook"\nurl = "https://evil.example/"' for name in names]
    tables += [f'[proxies.{name}]\nurls = ["http://proxy.example:1"]' for name in ["city", *names]]
    (folder / "gossamer.toml").write_text("\n".join(tables), encoding="utf-8")
    async with a_screen(folder, worker=False) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(screen: Screen) -> AsyncIterator[tuple[str, int]]:
    yield await fill(screen.project)


async def opened(screen: Screen) -> tuple[Page, list[str]]:
    page, dialogs = await screen.person(), []

    async def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        await dialog.dismiss()

    page.on("dialog", note)
    return page, dialogs


def paths(job: str, letter: int) -> list[str]:
    listed = [view.path for view in VIEWS if "{" not in view.path]
    segment = quote(job, safe="")
    text = quote(EVERYTHING, safe="")
    one = quote(f"http://evil0.example/{quote(CORPUS[0], safe='<>{}()=;*$#')}", safe="")
    return [
        *listed,
        *(f"{path}?q={text[:300]}" for path in ("/ui/jobs", "/ui/queue", "/ui/settings", "/ui/schedules")),
        f"/ui/jobs/{segment}", f"/ui/dead?job={segment}", f"/ui/dead/{segment}/{letter}", "/ui/queue/evil0.example",
        f"/ui/dead?reason={quote(CORPUS[1], safe='')}", f"/ui/why?url={one}", f"/ui/why?url={text[:900]}",
        f"/ui/attempts?reason={quote(CORPUS[0], safe='')}", f"/ui/attempts/page?url={one}",
        *(f"/ui/schedules/{quote(one, safe='')}" for one in CORPUS[:3]), f"/ui/alerts/{quote(CORPUS[0], safe='')}",
        f"/ui/nothing/{quote(CORPUS[1], safe='')}", *(f"/ui/incidents/evil-{n}" for n in range(4)),
    ]  # fmt: skip


async def test_no_view_runs_or_asks_for_anything_that_a_stranger_wrote(screen: Screen, filled: tuple[str, int]) -> None:
    page, dialogs = await opened(screen)
    seen = 0
    for path in paths(*filled):
        answer = await page.goto(path, wait_until="load")
        assert answer is not None
        assert answer.status in (200, 404, 422), path
        for details in await page.locator("details:not([open]) > summary").all():
            if await details.is_visible():
                await details.click()
        html, text = await page.content(), await page.locator("body").inner_text()
        assert await page.evaluate("window.ran") is None, path
        assert await page.locator("main script, main [onerror], main [onload], main [onfocus], main meta").count() == 0
        assert await page.locator("main a[href^='javascript:'], main iframe:not([sandbox])").count() == 0, path
        assert not set(TURNS) & set(text), path
        assert "could not be rendered" not in text, path
        seen += "&lt;script&gt;" in html or "<script>window.ran" in text
        strange = [one for one in screen.errors if "asked for" in one]
        assert strange == [], path
    assert seen >= 16, "the texts were shown"
    assert dialogs == []
    screen.errors.clear()  # of the frame with the raw page, which was kept from all that it wanted, and of 404


async def test_no_view_offers_what_the_role_of_the_reader_forbids(screen: Screen, filled: tuple[str, int]) -> None:
    record = f"/ui/record?{urlencode({'key': CORPUS[0], 'type': CORPUS[0], 'site': 'evil0.example'})}"
    offered: dict[str, set[str]] = {}
    for role in ROLES:
        key = (await add_key(screen.project, f"the {role}", [], role=role)).key
        begun = await SignIns(screen.project, None).begin(key)
        assert begun is not None
        for path in [*paths(*filled), record]:
            answer = await screen.served.http.get(path, headers={"cookie": f"{COOKIE}={begun[1]}"})
            assert "could not be rendered" not in answer.text, path
            forms = re.findall(r'<form[^>]* method="post" action="([^"?]+)', answer.text)
            offered.setdefault(role, set()).update(unescape(one) for one in forms)
    assert offered["viewer"] == {"/ui/sign-out"}
    assert {"/ui/record/erase", "/ui/keys/add", "/ui/dead/purge", "/ui/notes/add"} <= offered["admin"]
    for_admins = {one.path for one in ACTIONS if one.for_admins}
    assert offered["admin"] - offered["operator"] == for_admins & offered["admin"]


async def test_braces_of_templates_are_shown_as_they_are(screen: Screen, filled: tuple[str, int]) -> None:
    page, _ = await opened(screen)
    await page.goto("/ui/dead")
    await expect(page.get_by_role("region", name="Dead letters")).to_contain_text("{{7*7}}")
    assert await page.get_by_text("49", exact=True).count() == 0


async def test_a_raw_page_in_its_frame_can_do_nothing(screen: Screen, filled: tuple[str, int]) -> None:
    job, letter = filled
    page, dialogs = await opened(screen)
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    await page.goto(f"/ui/dead/{quote(job, safe='')}/{letter}/frame")
    assert await page.evaluate("window.ran") is None
    assert [url for url in asked if "evil.example" in url] == []
    assert dialogs == []
    screen.errors.clear()
