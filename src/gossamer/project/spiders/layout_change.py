"""New layouts that recipes met: which spiders have pages that parse no more, what was learned, what the next run says.

What it does: `find_damage` reads which spiders' last runs have dead letters of the parser or of the quality guard, or
fields that became empty. What was learned of one is a row of the shelf, which the alert `layout` tells. After rules
were taken into use, `doubts` compares the next run with what was known. How it fails: BackendUnavailable.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import msgspec

from ...frontier.contract import DeadFilter
from ...model.healing import FILE, LAYOUT, HealedField, LayoutChange, LayoutState, RulesVersion
from ...model.job import Job, JobState
from ...model.record import Tally, day_of
from ...model.shelf import ShelfKind
from ...pipeline.inspection import WHOLE
from ...recipe.induction.decision import Decision, expected_agreement
from ...recipe.induction.goal import goals_of
from ...recipe.spider import RecipeSpider
from ...settings import Settings
from ...store.contract import RecordQuery
from ...units import many
from ..open import Project
from ..records.records import healed_marks
from ..reparse.archive_job import FAILED
from .drift import FieldDrift, drift_words
from .heal import Healing, chosen_fields
from .healed_values import healed_record

RUNS_ASKED = 200  # the newest jobs
RECENT = timedelta(hours=24)  # runs that ended longer ago say nothing new
FEWEST_LETTERS = 5
LEAST_SHARE = 0.1  # of the pages of a run
MANY_LETTERS = 40  # of a run that goes on: enough to learn from
USUAL_DAYS = timedelta(days=14)
FEWEST_VALUES, FEWEST_BEFORE = 10, 20  # values checked today, and on the days before
FILLED, EMPTY = 0.6, 0.5  # a field that was filled at least so often, and is now in less than half as many items
RARE, SLIDE, SURE = 0.3, 0.08, 4.0  # of a field that may slide; the least slide; in standard deviations
KEPT = timedelta(days=30)  # after it is over
FEWEST_COMPARED, MOST_COMPARED = 5, 2_000  # records


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest run of a spider lost. `ended`: nothing more is to come."""

    spider: str
    job: Job
    letters: int = 0
    empty: tuple[str, ...] = ()  # fields that became empty
    sliding: tuple[str, ...] = ()  # fields that are found less often than they were, in words
    ended: bool = True

    @property
    def is_enough(self) -> bool:
        """Is there enough to learn from now?"""
        lost = bool(self.letters or self.empty or self.sliding)
        return lost and (self.ended or self.letters >= MANY_LETTERS)


def _kind(project: Project) -> ShelfKind[LayoutChange]:
    return ShelfKind(project.state.shelf, LAYOUT, LayoutChange)


async def layout_changes(project: Project) -> dict[str, LayoutChange]:
    """By spider."""
    return {one.spider: one for one in await _kind(project).all()}


async def layout_change_of(project: Project, spider: str) -> LayoutChange | None:
    return await _kind(project).get(spider)


async def put_layout_change(project: Project, change: LayoutChange) -> None:
    until = None if change.is_open else project.clock.now() + KEPT.total_seconds()
    await project.state.shelf.commit([_kind(project).put(change.spider, change, until=until)])


async def end_layout_change(project: Project, spider: str) -> None:
    """It is over: by undo, by another file, or because the pages are parsed again."""
    known = await layout_change_of(project, spider)
    if known is not None and known.is_open:
        await put_layout_change(project, msgspec.structs.replace(known, state=LayoutState.OVER))


async def change_of(project: Project, healing: Healing, job: str, letters: int, **more: object) -> LayoutChange:
    """What is to be kept of it."""
    tallies = await project.records.scores(spider=healing.spider, since=day_of(project.clock.now()))
    given: dict[str, object] = {"state": LayoutState.FOUND, "words": healing.words(), **more}
    return LayoutChange(
        spider=healing.spider,
        job=job,
        letters=letters,
        at=project.clock.now(),
        healed=len(chosen_fields(healing)),
        evidence=msgspec.Raw(msgspec.json.encode(healing, enc_hook=str)),
        counted={f"{one.type}.{one.field}": (one.checked, one.filled) for one in _of_fields(tallies)},
        **given,  # type: ignore[arg-type]  # its fields
    )


def drift_change(project: Project, job: Job, drift: Sequence[FieldDrift], since: float) -> LayoutChange:
    """An early warning that values drift, `since` a run before if it was open then."""
    spider = job.spider_name
    healing = Healing(
        spider=spider, file="", site="", rules=FILE, ended=False, read=0, kinds=[], left_out=[], drift=list(drift)
    )
    return LayoutChange(
        spider=spider,
        job=job.id,
        letters=0,
        at=project.clock.now(),
        state=LayoutState.FOUND,
        words=f"Values of {spider} may be wrong since {job.id}. {drift_words(drift)} See `gossamer quality {spider}`.",
        evidence=msgspec.Raw(msgspec.json.encode(healing)),
        since=since or job.created_at,
    )


# -- what is damaged -----------------------------------------------------------------------------------------------


async def find_damage(project: Project, known: dict[str, LayoutChange]) -> AsyncIterator[Damage]:
    """Of each spider's newest run, what was lost in it; also if that is nothing."""
    now = project.clock.now()
    newest: dict[str, Job] = {}
    for job in await project.state.history.page(RUNS_ASKED):
        if not job.parses_again and "://" not in job.spider_name:
            newest.setdefault(job.spider_name, job)
    tallies = await project.records.scores(since=day_of(now - USUAL_DAYS.total_seconds()))
    for spider, job in newest.items():
        if job.finished_at is not None and job.finished_at < now - RECENT.total_seconds():
            continue
        counts = await project.state.jobs.counts(job.id)
        letters = 0
        if counts.dead >= FEWEST_LETTERS:
            reasons = await project.state.queue.dead_reasons(DeadFilter(job=job.id))
            letters = sum(reasons.get(reason, 0) for reason in FAILED)
        if letters < max(FEWEST_LETTERS, LEAST_SHARE * (counts.done + counts.dead)):
            letters = 0
        own = [one for one in tallies if one.spider == spider]
        yield Damage(
            spider=spider,
            job=job,
            letters=letters,
            empty=empty_fields(own, day_of(now), known.get(spider)),
            sliding=sliding_fields(own, day_of(now), known.get(spider)),
            ended=job.state is not JobState.RUNNING,
        )


def _of_fields(tallies: Sequence[Tally]) -> list[Tally]:
    return [one for one in tallies if not one.rule and WHOLE not in (one.field, one.type)]


class Fill(msgspec.Struct):
    """How often a field was found: on the days before, and today."""

    field: str
    before: int = 0
    usual: int = 0  # of these, with a value
    checked: int = 0
    filled: int = 0

    @property
    def is_known(self) -> bool:
        return self.before >= FEWEST_BEFORE and self.checked >= FEWEST_VALUES

    @property
    def is_empty(self) -> bool:
        """Is it found in less than half as many items as before?"""
        often = self.is_known and self.usual >= FILLED * self.before
        return often and self.filled / self.checked < EMPTY * self.usual / self.before

    @property
    def slides(self) -> bool:
        """Is it found less often than before, by more than chance would have it?"""
        if not self.is_known or self.usual < RARE * self.before:
            return False
        was, now = self.usual / self.before, self.filled / self.checked
        spread = math.sqrt(max(was * (1 - was), 0.01) * (1 / self.checked + 1 / self.before))
        return now < was - max(SLIDE, SURE * spread)


def fills(tallies: Sequence[Tally], today: str, known: LayoutChange | None) -> list[Fill]:
    """By field. What was counted before the last change was looked at counts no more."""
    fields: dict[tuple[str, str], Fill] = {}
    for one in _of_fields(tallies):
        counts = fields.setdefault((one.type, one.field), Fill(one.field))
        if one.day == today:
            counts.checked += one.checked
            counts.filled += one.filled
        else:
            counts.before += one.checked
            counts.usual += one.filled
    if known is not None and day_of(known.at) == today:
        for (type, field), counts in fields.items():
            past = known.counted.get(f"{type}.{field}", (0, 0))
            counts.checked, counts.filled = counts.checked - past[0], counts.filled - past[1]
    return list(fields.values())


def empty_fields(tallies: Sequence[Tally], today: str, known: LayoutChange | None) -> tuple[str, ...]:
    """Fields that are found today in less than half as many items as on the days before."""
    return tuple(one.field for one in fills(tallies, today, known) if one.is_empty)


def sliding_fields(tallies: Sequence[Tally], today: str, known: LayoutChange | None) -> tuple[str, ...]:
    """Fields that are found less often than on the days before, in words: the first sign of a layout that changes."""
    return tuple(
        f"{one.field} is found in {one.filled / one.checked:.0%} of {many(one.checked, 'item')} today, and was in"
        f" {one.usual / one.before:.0%} before"
        for one in fills(tallies, today, known)
        if one.slides and not one.is_empty
    )


# -- rules that need nobody ----------------------------------------------------------------------------------------


def unasked_fields(settings: Settings, healing: Healing) -> list[HealedField]:
    """The rules that mode "auto" takes into use: none unless every key and required field that was lost is healed, on
    enough known pages; money only where it is allowed by name."""
    allowed = settings.heal.may_heal_money
    barred = set()
    for kind in healing.kinds:
        for one in kind.fields:
            sure = one.decision is Decision.HEAL and not (one.money and not allowed(healing.spider, one.field))
            if not sure:
                barred.add((kind.kind, one.field))
            if not sure and one.required:
                return []
        if kind.known < settings.heal.known:
            return []
    return [one for one in chosen_fields(healing) if one.place not in barred]


# -- what the next run says ----------------------------------------------------------------------------------------


async def doubts(project: Project, spider: RecipeSpider, version: RulesVersion, since: float) -> str:
    """What speaks against this version of the healed rules: the values of records that were checked `since` then,
    beside those from before; "" if nothing does."""
    brought = {
        (spider.recipe.kinds[one.kind].item, one.field) for one in version.fields if one.since >= version.version
    }
    counted: dict[str, list[int]] = {}  # by field: compared, changed, lost
    records = new = 0
    keys = {name for kind in spider.recipe.kinds.values() for name in kind.key}
    marks = await healed_marks(project.records)
    async for record in project.records.records(RecordQuery(spider=spider.name, gone=False, newest=True)):
        if records >= MOST_COMPARED:
            break
        names = [name for type, name in brought if type == record.type]
        if not names or record.last_checked < since:
            continue
        one = await healed_record(project, record, marks, version.version)  # None: it is as it was before these rules
        records += 1
        new += one is not None and one.former is None and not keys.isdisjoint(one.fields)
        former = (one.former or {}) if one is not None else record.data
        for name in names:
            before, after = former.get(name), record.data.get(name)
            if before not in (None, "", []):
                counts = counted.setdefault(name, [0, 0, 0])
                counts[0] += 1
                counts[1] += before != after
                counts[2] += after in (None, "", [])
    goals = {goal.name: goal for kind in spider.recipe.kinds.values() for goal in goals_of(kind.fields, kind.key)}
    told = []
    if new >= FEWEST_COMPARED and 2 * new > records:
        told.append(f"{new} of {many(records, 'record')} have a key that no record had before")
    for name, (compared, changed, lost) in counted.items():
        if compared < FEWEST_COMPARED or name not in goals:
            continue
        if compared - changed < expected_agreement(goals[name], compared) * compared:
            gone = f", {lost} of them to nothing" if lost else ""
            told.append(f"{name}: {changed} of {many(compared, 'value')} changed{gone}")
    return "; ".join(told)
