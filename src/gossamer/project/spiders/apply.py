"""Healed rules applied: taken into use, and the pages that had changed parsed again from the archive. And the way back.

What it does: `apply` takes rules into use in the state, settles the dead letters of the spider by parsing their
archived pages, and parses again what was stored without the lost fields. `undo` takes the version before into use and
takes back the values of the version that was left. No request is made. How it fails: Misconfigured, BackendUnavailable.
How it recovers: every step may be repeated; pages that were not reached are parsed by the next call, or by
`gossamer dead replay`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...errors import Misconfigured
from ...frontier.contract import DeadFilter
from ...model.events import EventSink, NullSink
from ...model.healing import HealedField, LayoutState
from ...recipe.spider import RecipeSpider
from ...settings import Settings
from ...units import many, seconds_of
from ..open import Project, open_crawled
from ..reparse.archive_job import FAILED, ReparseChoice
from ..reparse.dead_letters import Revival, revive
from ..reparse.run import reparse
from .heal import Healing
from .healed_values import TakenBack, take_back
from .layout_change import change_of, end_layout_change, layout_change_of, put_layout_change
from .rules import adopt, in_use, step_back

MOST_TOLD = 5


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What applying rules did. `failures` are pages that still cannot be parsed, the first ones with their reasons."""

    spider: str
    rules: int  # the version that is in use now
    fields: list[str]
    settled: int = 0  # dead letters
    parsed: int = 0  # other pages, again
    changed: int = 0  # records that are new or changed
    failed: int = 0
    failures: list[str] = []

    def words(self) -> str:
        pages = f"{many(self.settled, 'dead letter')} settled" if self.settled else "no dead letter was there to settle"
        again = f", {many(self.parsed, 'other page')} parsed again" if self.parsed else ""
        failed = f" {many(self.failed, 'page')} could still not be parsed." if self.failed else ""
        return (
            f"Version {self.rules} of the healed rules of {self.spider} is in use ({', '.join(self.fields)}): {pages}"
            f"{again}, {many(self.changed, 'record')} new or changed.{failed}"
        )


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """What taking the version before into use did."""

    spider: str
    left: int  # the version that was in use
    rules: int  # the one that is now; 0: the file alone
    values: int = 0
    records: int = 0
    gone: int = 0

    def words(self) -> str:
        now = f"Version {self.rules} holds again" if self.rules else "The file alone holds again"
        gone = f" {many(self.gone, 'record')} that only these rules had given: gone." if self.gone else ""
        taken = f" {many(self.values, 'value')} of {many(self.records, 'record')} taken back." if self.records else ""
        return f"Version {self.left} of the healed rules of {self.spider} is left. {now}.{taken}{gone}"


async def apply(
    settings: Settings,
    spider: RecipeSpider,
    healing: Healing,
    fields: Sequence[HealedField],
    *,
    by: str,
    job: str = "",
    letters: int = 0,
    events: EventSink | None = None,
) -> Applied:
    """Take the rules into use and parse the changed pages again. `job` met them, with so many dead letters. Raises
    Misconfigured, BackendUnavailable."""
    async with open_crawled(settings) as project:
        version = await adopt(project, spider, fields, by)
        known = await layout_change_of(project, spider.name)
        names = ", ".join(dict.fromkeys(one.field for one in fields))
        words = (
            f"{healing.words()} Version {version.version} of the healed rules is in use ({names}); the next run will"
            f" show whether they are right. `gossamer heal {spider.name} --undo` leaves them."
        )
        change = await change_of(
            project,
            healing,
            job or (known.job if known is not None else ""),
            letters or (known.letters if known is not None else 0),
            state=LayoutState.APPLIED,
            words=words,
            version=version.version,
        )
        await put_layout_change(project, change)
        done = await settle_letters(project, spider.name)
    applied = Applied(
        spider=spider.name,
        rules=version.version,
        fields=list(dict.fromkeys(one.field for one in fields)),
        settled=done.resolved,
        changed=done.changed,
        failed=done.failed,
        failures=[one.message for one in done.failures[:MOST_TOLD]],
    )
    if any(kind.incomplete for kind in healing.kinds):
        since = min(seconds_of(kind.since) for kind in healing.kinds) - 1.0
        report = await reparse(settings, ReparseChoice(spider=spider.name, since=since), events or NullSink())
        applied = msgspec.structs.replace(
            applied,
            parsed=report.pages,
            changed=applied.changed + report.changed,
            failed=applied.failed + report.failed,
        )
    return applied


async def settle_letters(project: Project, spider: str) -> Revival:
    """Parse the dead letters of a spider again that its rules could not read. Raises BackendUnavailable."""
    total = Revival()
    for job in await project.state.jobs.jobs():
        if job.spider_name == spider:
            for reason in FAILED:
                done = await revive(project, DeadFilter(job=job.id, reason=reason))
                total.resolved += done.resolved
                total.changed += done.changed
                total.failed += done.failed
                total.failures += done.failures
    return total


async def undo(project: Project, spider: RecipeSpider, *, keep_values: bool = False) -> Undone:
    """Take the version before into use, and take back what the version that is left gave, unless `keep_values`. Raises
    Misconfigured if no healed rules are in use."""
    left = await step_back(project, spider)
    if left is None:
        raise Misconfigured(
            f"The healed rules of {spider.name} did not carry the seal of the project's key. They are removed, and the"
            f" file alone holds."
        )
    await end_layout_change(project, spider.name)
    now = await in_use(project, spider)
    taken = TakenBack() if keep_values else await take_back(project, spider, left.version)
    return Undone(
        spider=spider.name,
        left=left.version,
        rules=now.rules_version if isinstance(now, RecipeSpider) else 0,
        values=taken.values,
        records=taken.records,
        gone=taken.gone,
    )
