"""Builds what lies between a spider's items and the store, from the settings: the pipeline and the inspector.

Separate from wiring.py, so that a process that only parses does not load fetch code.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ..errors import Transient
from ..model.record import RecordIdentity, Tally
from ..parse.spider import Spider, spider_version
from ..pipeline.inspection import Habits, Inspector, Latest
from ..pipeline.quality_guard import FEWEST, QualityGuard
from ..pipeline.steps import Pipeline
from ..settings import Settings
from ..store.contract import Records
from ..store.sink import Sink
from ..terms import minimum_quality, on_fault_of_spider, url_rules

HABITS_OF = timedelta(days=30)  # how far back the usual shape of a spider's items is learned


def pipeline_of(
    settings: Settings,
    spider: Spider,
    *,
    counted: Sequence[Tally] = (),
    latest: Latest | None = None,
    strict: bool = False,
) -> Pipeline:
    """The pipeline of a spider. `counted` are the tallies of the last days, from which its habits are derived; `strict`
    allows no exception to them."""
    inspector = Inspector(
        spider.name,
        settings.quality,
        rules=spider.quality_rules,
        habits=Habits(settings.quality.usual, counted, strict=strict),
        latest=latest,
    )
    return Pipeline(
        spider.pipeline,
        inspector=inspector,
        cleans=spider.clean,
        on_fault=on_fault_of_spider(settings, spider),
        rules=url_rules(settings),
    )


async def quality_guard_of(settings: Settings, spider: Spider, job: str, records: Records) -> QualityGuard:
    """The quality guard of a job, with the last items that this version of its spider yielded in any process.
    Raises Misconfigured, BackendUnavailable."""
    minimum, window = minimum_quality(settings, spider), settings.quality.window
    guard = QualityGuard(spider.name, minimum, window, keeps_pages=settings.store.keep_pages)
    if minimum is not None:
        guard.recall(await records.recent_items(job, spider_version(type(spider)), max(window, FEWEST)))
    return guard


def latest_of(records: Records, sink: Sink) -> Latest:
    """The earlier versions of records. Empty while the record store is away: then results go to the spool without a
    comparison."""

    async def latest(identities: Sequence[RecordIdentity]) -> dict[RecordIdentity, str]:
        if sink.records_away:
            return {}
        try:
            return await records.latest(identities)
        except Transient:
            return {}

    return latest
