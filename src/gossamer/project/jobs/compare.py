"""Two runs side by side: their counts, what the later one added, changed and did not find, and failures that are new.

How it fails: BackendUnavailable; NotThere for a job that the caller does not see.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import msgspec
from msgspec import Meta

from ...errors import Misconfigured, NotThere
from ...frontier.contract import DeadFilter
from ...model.failure_groups import FailureGroup
from ...model.run_records import DifferenceKind
from ...store.contract import RecordQuery
from ..access.keys import JOBS, RECORDS, Caller
from ..open import Project
from ..operation import Operation
from ..records.records import DIFFERENCE_WORDS, RecordDifference, difference_view, difference_words, ends_of
from .failures import failures_of
from .jobs import JobView, find_job, views_of
from .outcome import LOOKED_AT, earlier_runs
from .run_log import log_of

MOST_COMPARED = 100_000  # differences that are counted
EXAMPLES = 20  # records that are named
GROUPS = 50
FIGURES = ("done", "unchanged", "dead", "dropped", "retries", "redirected", "total")
Id = Annotated[str, Meta(max_length=300, description="Its id: books-3.")]


class RunPair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    before: Id
    after: Id


class RunFigure(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    before: float | None
    after: float | None


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """`records` counts what became of records: added, changed, back, again, gone and unseen (`RecordDifference`); None
    for a caller who may not see them. `added`, `changed` and `gone` are three of these; `cut`: there are more.
    `examples` are the first of them. `new_failures` are groups of dead letters that the earlier run does not have, and
    `old_failures` those that only it has. `codes` are the versions of the spider, with the commits that are known."""

    before: JobView
    after: JobView
    figures: list[RunFigure]
    added: int | None
    changed: int | None
    gone: int | None
    records: dict[DifferenceKind, int] | None
    cut: bool
    examples: list[RecordDifference]
    new_failures: list[FailureGroup]
    old_failures: list[FailureGroup]
    codes: tuple[dict[str, str], dict[str, str]]


async def compare_runs(project: Project, caller: Caller, pair: RunPair) -> RunComparison:
    if pair.before == pair.after:
        raise Misconfigured(f"{pair.before} is compared with itself. Name two different jobs.")
    jobs = []
    for id in (pair.before, pair.after):
        job = await project.state.jobs.job(id)
        if job is None or not caller.sees(job):
            raise NotThere(f"There is no job {id}. `gossamer job list` lists them.")
        jobs.append(job)
    before, after = await views_of(project, jobs)
    counts: Counter[DifferenceKind] = Counter()
    examples: list[RecordDifference] = []
    records: list[int | None] = [None, None]
    may_see = caller.may(RECORDS)
    if may_see:
        records = [await project.records.count(RecordQuery(job=job.id)) for job in jobs]
        ends = await ends_of(project, before.id, after.id)
        async for difference in project.records.differences(before.id, after.id, ends):
            counts[difference.kind] += 1
            if len(examples) < EXAMPLES:
                examples.append(difference_view(difference))
            if counts.total() >= MOST_COMPARED:
                break
    groups = [await _groups(project, view) for view in (before, after)]
    return RunComparison(
        before=before,
        after=after,
        figures=[
            *(RunFigure(name=name, before=getattr(before, name), after=getattr(after, name)) for name in FIGURES),
            RunFigure(name="records", before=records[0], after=records[1]),
            RunFigure(name="seconds", before=round(before.seconds, 1), after=round(after.seconds, 1)),
            RunFigure(name="pages per second", before=before.pages_per_second, after=after.pages_per_second),
        ],
        added=counts["added"] if may_see else None,
        changed=counts["changed"] if may_see else None,
        gone=counts["gone"] if may_see else None,
        records={kind: counts[kind] for kind in DIFFERENCE_WORDS if counts[kind]} if may_see else None,
        cut=counts.total() >= MOST_COMPARED,
        examples=examples,
        new_failures=[group for key, group in groups[1].items() if key not in groups[0]],
        old_failures=[group for key, group in groups[0].items() if key not in groups[1]],
        codes=((await log_of(project, jobs[0])).codes, (await log_of(project, jobs[1])).codes),
    )


async def run_before(project: Project, wanted: str) -> tuple[str, str]:
    """The run before a job, and the job: of the same records if there is one, else of the same name. Raises
    Misconfigured if it was the first."""
    job = await find_job(project, wanted)
    earlier = await earlier_runs(project, job)
    if not earlier:
        newest = await project.state.history.newest_jobs(job.name, LOOKED_AT)
        earlier = [one for one in newest if one.created_at < job.created_at]
    if not earlier:
        raise Misconfigured(f"{job.id} is the first run of {job.name}: there is none before it to compare it with.")
    return earlier[0].id, job.id


async def _groups(project: Project, view: JobView) -> dict[str, FailureGroup]:
    found = await failures_of(project, DeadFilter(job=view.id), view.dead, largest=GROUPS)
    return {group.key: group for group in found.groups} if found is not None else {}


def in_words(found: RunComparison) -> str:
    """A table for people, then what is new."""
    lines = [f"{'':18}{found.before.id:>20}  {found.after.id:>20}"]
    lines += [f"{one.name:18}{_number(one.before):>20}  {_number(one.after):>20}" for one in found.figures]
    lines.append(f"{'spider':18}{_code(found.codes[0]):>20}  {_code(found.codes[1]):>20}")
    if found.records is not None:
        lines.append(f"\nRecords: {difference_words(found.records)}{' or more' if found.cut else ''}.")
    for title, groups in (("New failures", found.new_failures), ("Failures that are over", found.old_failures)):
        lines += [f"\n{title}:"] if groups else []
        lines += [f"  {group.count:,} {group.reason}: {group.message}" for group in groups]
    return "\n".join(lines)


def _code(codes: dict[str, str]) -> str:
    return ", ".join(commit[:12] or code for code, commit in codes.items()) or "unknown"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


COMPARE = Operation(
    verb="job compare", summary="Two runs side by side: counts, records, failures that are new",
    arguments=("before", "after"), method="GET", path="/api/v1/jobs/{before}/compare/{after}", scope=JOBS,
    ask=RunPair, gives=RunComparison, run=compare_runs, words=in_words,
)  # fmt: skip
