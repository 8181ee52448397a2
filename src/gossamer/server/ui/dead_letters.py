"""Views of dead letters: a filtered list, replayed or purged after a question that shows their number; one letter with
its attempts, its traceback and its raw page, as text and in a sandboxed frame."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...errors import Misconfigured
from ...project.access.keys import JOBS
from ...project.dead_letters.dead_letters import (
    DeadLetterChoice,
    DeadLetterDetail,
    count_letters,
    letter_of,
    letters_by_site,
    list_letters,
    purge_letters,
    raw_page,
    replay_letters,
)
from ...units import many
from ..answers import ApiError
from .templates import LONGEST_TEXT, link, segment
from .view import Context, Done, FileAnswer, FormAction, Question, View, Visit, check_seen, job_of, missing

Text = Annotated[str, Meta(max_length=2083)]
AT_ONCE = 100
SITES_SHOWN = 10  # with the most letters
FRAME = {
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'self'",
    "x-content-type-options": "nosniff",
    "content-disposition": "inline",
}


class LetterFilters(msgspec.Struct, frozen=True, kw_only=True):
    job: Text | None = None
    reason: Text | None = None
    domain: Text | None = None
    url: Text | None = None
    group: Text | None = None
    after: Annotated[str, Meta(max_length=500)] = ""


class LetterForm(msgspec.Struct, frozen=True, kw_only=True):
    job: Text = ""
    reason: Text = ""
    domain: Text = ""
    url: Text = ""
    group: Text = ""
    fetch: bool = False

    def choice(self) -> DeadLetterChoice:
        return DeadLetterChoice(
            target=self.url or None,
            job=self.job or None,
            reason=self.reason or None,
            domain=self.domain or None,
            group=self.group or None,
        )

    def back(self) -> str:
        return link("/ui/dead", job=self.job, reason=self.reason, domain=self.domain)


async def list_region(visit: Visit) -> Context:
    chosen = visit.of(LetterFilters)
    if not await _may_see(visit, chosen.job):
        return {"page": None, "filtered": False}
    choice = DeadLetterChoice(
        target=chosen.url or None,
        job=chosen.job or None,
        reason=chosen.reason or None,
        domain=chosen.domain or None,
        group=chosen.group or None,
    )
    page = await list_letters(visit.project, choice, limit=AT_ONCE, after=chosen.after)
    return {
        "page": page,
        "by_site": await letters_by_site(visit.project, choice, limit=SITES_SHOWN),
        "filtered": choice != DeadLetterChoice(),
        "mine": await _is_mine(visit, chosen.job),
    }


async def _may_see(visit: Visit, job: str | None) -> bool:
    """Only an admin may see the letters of all jobs; other callers must name one of their own jobs."""
    await check_seen(visit, job)
    return bool(job) or visit.caller.is_admin


async def _is_mine(visit: Visit, job: str | None) -> bool:
    """May the visitor replay and purge the letters of the job?"""
    if visit.caller.refusal():
        return False
    return visit.caller.is_admin or (job is not None and visit.caller.may_change(await job_of(visit, job)))


async def one(visit: Visit) -> Context:
    letter = await _letter(visit)
    text = ""
    if letter.archive_ref is not None:
        text = (await raw_page(visit.project, letter))[: 4 * LONGEST_TEXT].decode("utf-8", "replace")
    mine = await _is_mine(visit, letter.job)
    return {"letter": letter, "raw": text, "fields": {"job": letter.job, "url": letter.url}, "mine": mine}


async def _letter(visit: Visit) -> DeadLetterDetail:
    await job_of(visit, visit.path["job"])
    try:
        return await letter_of(visit.project, visit.path["job"], visit.path["letter"])
    except Misconfigured:
        raise missing("dead letter of that number") from None


async def frame(visit: Visit) -> Response:
    """The raw page for a sandboxed frame: it can be seen, but cannot run scripts or load anything."""
    letter = await _letter(visit)
    body = await raw_page(visit.project, letter)
    return Response(body, headers=FRAME, media_type="text/html")


async def file(visit: Visit) -> Response:
    letter = await _letter(visit)
    headers = {"content-disposition": f'attachment; filename="dead-letter-{letter.id}"'}
    return Response(await raw_page(visit.project, letter), headers=headers, media_type="application/octet-stream")


# -- replay and purge ------------------------------------------------------------------------------------------------


async def _chosen(visit: Visit) -> DeadLetterChoice:
    form = visit.of(LetterForm)
    if form.job:
        await job_of(visit, form.job, to_change=True)
    elif not visit.caller.is_admin:
        raise ApiError(403, "scope", "Name one of your jobs: the dead letters of all jobs need the scope admin.")
    return form.choice()


async def ask_to_replay(visit: Visit) -> Question:
    count = await count_letters(visit.project, await _chosen(visit))
    words = f"Try {many(count, 'dead letter')} again? Pages that could not be parsed are parsed from the archive."
    return Question(words=words, button=f"Try {many(count, 'dead letter')} again", back=visit.of(LetterForm).back())


async def replay(visit: Visit) -> Done:
    form = visit.of(LetterForm)
    done = await replay_letters(visit.project, await _chosen(visit), fetch=form.fetch)
    said = []
    if done.queued:
        said.append(f"{many(sum(done.queued.values()), 'dead letter')} back in the queue")
    if done.resolved:
        said.append(f"{many(done.resolved, 'dead letter')} parsed from the archive, {many(done.records, 'record')}")
    if done.failed:
        said.append(f"{many(done.failed, 'dead letter')} failed again: {done.failures[0].message}")
    said += [f"{many(count, 'dead letter')} left out: {why}" for why, count in done.left_out.items()]
    words = "; ".join(said) or "There was nothing to try again"
    return Done(words=f"{words}.", to=form.back(), target=form.job or form.url)


async def ask_to_purge(visit: Visit) -> Question:
    count = await count_letters(visit.project, await _chosen(visit))
    words = f"Forget {many(count, 'dead letter')} for good? Raw pages and attempts stay; the pages count as dropped."
    return Question(words=words, button=f"Forget {many(count, 'dead letter')}", back=visit.of(LetterForm).back())


async def purge(visit: Visit) -> Done:
    form = visit.of(LetterForm)
    count = await purge_letters(visit.project, await _chosen(visit))
    return Done(words=f"{many(count, 'dead letter')} forgotten.", to=form.back(), target=form.job or form.url)


def page_of(job: str, letter: int) -> str:
    return f"/ui/dead/{segment(job)}/{letter}"


VIEWS = (
    View("/ui/dead", "Dead letters", "dead.html", {"listed": list_region}, JOBS, query=LetterFilters, group="Work"),
    View("/ui/dead/{job}/{letter}", "Dead letter", "letter.html", {"one": one}, JOBS, live=False),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/dead/replay", handler=replay, ask=ask_to_replay, form=LetterForm, scope=JOBS),
    FormAction(path="/ui/dead/purge", handler=purge, ask=ask_to_purge, form=LetterForm, scope=JOBS),
)
DOWNLOADS = (
    FileAnswer(path="/ui/dead/{job}/{letter}/frame", handler=frame, scope=JOBS),
    FileAnswer(path="/ui/dead/{job}/{letter}/raw", handler=file, scope=JOBS),
)
