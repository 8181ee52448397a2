"""Dead letters of requests that must not be sent twice: which of them a replay may send again.

A replay is a person's decision to send such a request again, so its note in the record store is removed
(crawl/unsafe_send.py). An `uncertain` letter whose answer has been stored since keeps its note: the worker that leases
it settles it by that answer, without a request. A worker that stores an answer after it lost its lease closes the
letter itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...crawl.unsafe_send import stored_answer
from ...errors import Uncertain
from ...frontier.contract import Added, DeadFilter, DeadLetter
from ...model.task import Candidate, Task
from ...store.contract import SentNote
from ..open import Project

AT_ONCE = 500  # letters whose notes are removed in one commit


async def allow_sending(project: Project, which: DeadFilter) -> None:
    """Called before these letters are replayed. Raises BackendUnavailable."""
    some: list[DeadLetter] = []
    async for letter in project.state.queue.letters(which):
        if some and (some[0].job != letter.job or len(some) == AT_ONCE):
            await _forget(project, some)
            some = []
        some.append(letter)
    if some:
        await _forget(project, some)


async def _forget(project: Project, letters: list[DeadLetter]) -> None:
    records, job = project.records, await project.state.jobs.job(letters[0].job)
    await records.forget_sent(letters[0].job, [letter.fingerprint for letter in letters])
    for letter in letters:
        if letter.reason != Uncertain.reason:
            continue
        begun_at = job.created_at if job is not None else 0.0
        answer = await stored_answer(records, letter.job, letter.fingerprint, begun_at)
        if answer is not None:
            # With the time of the answer: if that belongs to an earlier request, which this one may repeat, it is sent.
            note = SentNote(job=letter.job, fingerprint=letter.fingerprint, owner="answered", at=answer.at)
            await records.note_sent(note)


async def close_letter(
    project: Project, task: Task, discovered: Sequence[Candidate], duplicates: int, reason: str
) -> Added | None:
    """Settle the `uncertain` letter of a request whose answer is stored; None if there is none. Raises Transient."""
    from ..jobs.outcome import settle_again

    which = DeadFilter(job=task.job, site=task.site, fingerprint=task.fingerprint, reason=Uncertain.reason)
    for letter in await project.state.queue.dead(which, limit=1):
        added = await project.state.queue.resolve(letter, discovered, duplicates=duplicates, reason=reason)
        await settle_again(project, task.job, "its answer was stored already")
        return added
    return None
