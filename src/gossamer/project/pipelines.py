"""What stands between a spider's items and the store, put together from settings: its pipeline, inspector and minimum.

Apart from assembly.py, so that a process that only parses need not load what fetches.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Misconfigured, Transient
from ..model.record import Tally
from ..parse.spider import Spider
from ..pipeline.inspection import Habits, Inspector, Latest
from ..pipeline.steps import Pipeline
from ..settings import Settings
from ..store.contract import Identity, Records
from ..store.sink import Sink


def pipeline_of(
    settings: Settings,
    spider: Spider,
    *,
    counted: Sequence[Tally] = (),
    latest: Latest | None = None,
    strict: bool = False,
) -> Pipeline:
    """The pipeline of a spider. `counted` are the tallies of its last days, from which its habits are known; `strict`
    bears no exception to these."""
    inspector = Inspector(
        spider.name,
        settings.quality,
        rules=spider.quality_rules,
        habits=Habits(settings.quality.usual, counted, strict=strict),
        latest=latest,
    )
    return Pipeline(spider.pipeline, inspector=inspector, cleans=spider.clean)


def latest_of(records: Records, sink: Sink) -> Latest:
    """What records looked like before. While the store is away nobody knows, and results go to the spool without."""

    async def latest(identities: Sequence[Identity]) -> dict[Identity, str]:
        if sink.away:
            return {}
        try:
            return await records.latest(identities)
        except Transient:
            return {}

    return latest


def minimum_of(settings: Settings, spider: Spider) -> float | None:
    """The quality that a spider demands. Raises Misconfigured."""
    minimum = settings.quality.minimum if spider.min_quality is None else spider.min_quality
    if minimum is not None and not 0 < minimum <= 1:
        raise Misconfigured(f"Spider {spider.name}: min_quality = {minimum!r} must be a share between 0 and 1, as 0.8.")
    return minimum
