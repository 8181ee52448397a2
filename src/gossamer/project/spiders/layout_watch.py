"""The layout watch: notices that recipes find nothing any more, lets a child process learn the rules again, and
compares the run after. In the process of the leading scheduler.

What it does: looks at the newest run of every spider. One learner runs at a time, apart from all crawling, with limits
of memory and time; it keeps what it found in the state (layout_child.py). How it fails: an obstacle is reported once,
and a learner that takes too long is killed. How it recovers: a learner is started again when more pages fail, and by
the next leader; rules are taken into use in one step, and replaying pages can be repeated.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ...errors import LeaseLost, Transient
from ...model.events import EventSink, Trouble
from ...model.healing import LayoutChange, LayoutState, RulesVersion
from ...recipe.spider import RecipeSpider
from ...schedule.leadership import Lead
from ...schedule.spider_loader import SpiderLoader
from ...settings.quality_tables import AUTO, OFF
from ..open import Project
from .drift import spider_drift
from .layout_change import (
    Damage,
    doubts,
    drift_change,
    find_damage,
    layout_change_of,
    layout_changes,
    put_layout_change,
)
from .learner import NEVER, SURE, LearnOrder, run_learner
from .rules import rules_of

EVERY = timedelta(seconds=15)  # between two looks
AGAIN = timedelta(minutes=10)  # after a learner that found nothing, or failed
GREW = 2  # times as many dead letters as when rules were learned last


class LayoutWatch:
    """Watches while `run` runs and its scheduler leads."""

    def __init__(self, project: Project, lead: Lead, events: EventSink) -> None:
        self._project = project
        self._lead = lead
        self._events = events
        self._tried: dict[str, tuple[str, int, float]] = {}  # by spider: job, letters, when
        self._drift: dict[str, tuple[str, bool]] = {}  # by spider: the job that was looked at, and whether it drifts
        self._told: set[str] = set()
        self._loader = SpiderLoader(project.settings)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            if self._lead.held:
                try:
                    await self.turn()
                    self._told.clear()
                except (Transient, LeaseLost) as error:
                    self._tell(str(error))
                except Exception as error:  # a defect in Gossamer, or in a spider's file: the next look may succeed
                    self._tell(f"Changed layouts could not be looked at: {type(error).__name__}: {error}")
            await self._project.clock.sleep(EVERY.total_seconds())

    async def turn(self) -> None:
        """Look once, and let a child learn where that is due; returns when it is done."""
        known = await layout_changes(self._project)
        async for damage in find_damage(self._project, known):
            change = known.get(damage.spider)
            if damage.is_enough:
                if self._project.settings.heal.mode != OFF and self._is_due(damage, change):
                    await self._learn(damage)
            elif not await self._drifts(damage, change) and change is not None and change.is_open:
                await self._settle(damage, change)

    # -- learning ----------------------------------------------------------------------------------------------

    def _is_due(self, damage: Damage, change: LayoutChange | None) -> bool:
        job, letters, at = self._tried.get(damage.spider, ("", 0, 0.0))
        if change is not None and change.is_open and change.job == damage.job.id:
            job, letters, at = change.job, max(letters, change.letters), max(at, change.at)
        if job != damage.job.id:
            return True
        if change is not None and change.state is LayoutState.APPLIED and damage.ended:
            # Pages that were parsed by the rules before, until every worker had the new ones.
            return self._tried.get(damage.spider, ())[:2] != (damage.job.id, damage.letters)
        grew = damage.letters >= GREW * max(letters, 1)
        return grew and (damage.ended or self._project.clock.now() - at >= AGAIN.total_seconds())

    async def _learn(self, damage: Damage) -> None:
        now = self._project.clock.now()
        self._tried[damage.spider] = (damage.job.id, damage.letters, now)
        auto = self._project.settings.heal.mode == AUTO
        order = LearnOrder(
            spider=damage.spider, job=damage.job.id, letters=damage.letters, apply=SURE if auto else NEVER, by=AUTO
        )
        fault = await run_learner(self._project, order)
        if not fault:
            change = await layout_change_of(self._project, damage.spider)
            if damage.sliding and (change is None or change.job != damage.job.id or not change.is_open):
                await self._warn(damage)
            return
        words = f"New rules for {damage.spider} could not be learned: {fault}"
        self._tell(words)
        await put_layout_change(
            self._project,
            LayoutChange(
                spider=damage.spider,
                job=damage.job.id,
                letters=damage.letters,
                at=now,
                state=LayoutState.UNLEARNED,
                words=words,
            ),
        )

    async def _warn(self, damage: Damage) -> None:
        """Fields slide, and there is nothing to be learned yet."""
        words = (
            f"The layout behind {damage.spider} may be changing, {damage.job.id} says: {'; '.join(damage.sliding)}. Its"
            f" rules still find the rest; `gossamer heal {damage.spider}` shows what can be learned."
        )
        await put_layout_change(
            self._project,
            LayoutChange(
                spider=damage.spider,
                job=damage.job.id,
                letters=damage.letters,
                at=self._project.clock.now(),
                state=LayoutState.FOUND,
                words=words,
            ),
        )

    async def _drifts(self, damage: Damage, change: LayoutChange | None) -> bool:
        """Is the change of this spider that its values drift? They are looked at when a run has ended."""
        open_change = change if change is not None and change.is_open else None
        if self._project.settings.heal.mode == OFF or (open_change and open_change.state is not LayoutState.FOUND):
            return False
        if not damage.ended:
            return open_change is not None and open_change.since > 0
        job, drifts = self._drift.get(damage.spider, ("", False))
        if job != damage.job.id:
            found = await spider_drift(self._project, damage.spider)
            drifts = bool(found)
            self._drift[damage.spider] = (damage.job.id, drifts)
            if found:
                since = open_change.since if open_change is not None else 0.0
                await put_layout_change(self._project, drift_change(self._project, damage.job, found, since))
        return drifts

    # -- what became of it -------------------------------------------------------------------------------------

    async def _settle(self, damage: Damage, change: LayoutChange) -> None:
        """Nothing is lost any more: the change is over, unless healed rules are in use and not proved yet."""
        if change.state in (LayoutState.FOUND, LayoutState.UNLEARNED):
            await self._put(change, state=LayoutState.OVER)
            return
        loaded = await self._loader.load([change.spider])
        spider = loaded.get(change.spider)
        if spider is None:
            return  # it is still being loaded
        held = await self._held(spider) if isinstance(spider, RecipeSpider) else None
        if not isinstance(spider, RecipeSpider) or held is None or held.version < change.version:
            await self._put(change, state=LayoutState.OVER)
            return
        if change.state is LayoutState.DOUBTFUL or damage.job.id == change.job or not damage.ended:
            return
        if damage.job.created_at < change.at:
            return  # it began under the rules before
        against = await doubts(self._project, spider, held, damage.job.created_at)
        if not against:
            await self._put(change, state=LayoutState.OVER)
            return
        words = (
            f"Version {change.version} of the healed rules of {change.spider} may be wrong, {damage.job.id} says:"
            f" {against}. `gossamer heal {change.spider} --undo` leaves them and takes their values back."
        )
        await self._put(change, state=LayoutState.DOUBTFUL, words=words)

    async def _held(self, spider: RecipeSpider) -> RulesVersion | None:
        return (await rules_of(self._project, spider.name)).in_use(spider.recipe.text)

    async def _put(self, change: LayoutChange, **news: object) -> None:
        await put_layout_change(self._project, msgspec.structs.replace(change, **news))

    def _tell(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._events.emit(Trouble(at=self._project.clock.now(), stage="heal", message=words))
