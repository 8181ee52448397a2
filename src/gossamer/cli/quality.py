"""`gossamer quality`: how good the data of each spider was, day by day and field by field."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer

from ..model.record import Tally
from ..pipeline.inspection import WHOLE
from ..text import visible
from .app import app, err, run_async, settings_with
from .layout import Column, advise, print_json, print_table
from .look import open_crawled

DAYS = 14
RULES_SHOWN = 3


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The count of one field on one day, and which rules were broken."""

    tally: Tally
    rules: tuple[tuple[str, int], ...]

    @property
    def score(self) -> float:
        return 1 - self.tally.faulty / self.tally.checked if self.tally.checked else 1.0

    @property
    def filled(self) -> float:
        return self.tally.filled / self.tally.checked if self.tally.checked else 0.0

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = msgspec.structs.asdict(self.tally)
        del told["rule"]
        return {**told, "score": round(self.score, 4), "rules": dict(self.rules)}


@app.command("quality")
def quality_verb(
    spider: Annotated[str | None, typer.Argument(help="Only this spider, field by field.")] = None,
    days: Annotated[int, typer.Option(min=1, max=36_500, help="Of the last so many days (UTC).")] = DAYS,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show the share of faultless items per spider and day; with a spider's name, per field."""
    settings = settings_with()
    since = (datetime.now(UTC) - timedelta(days=days - 1)).strftime("%Y-%m-%d")

    async def find() -> list[Tally]:
        async with open_crawled(settings) as project:
            return await project.records.scores(spider=spider, since=since)

    scores = scores_of(run_async(find()))
    if as_json:
        print_json([score.as_json() for score in scores])
        return
    if not scores:
        err.print(
            f"Nothing was checked for {visible(spider)} in the last {days} days."
            if spider
            else f"Nothing was checked in the last {days} days."
        )
        raise typer.Exit(1)
    shown = [one for one in scores if one.tally.field == WHOLE or (spider is not None and one.tally.type != WHOLE)]
    shown += [one for one in scores if spider is not None and one.tally.type == WHOLE and one.tally.field != WHOLE]
    print_table(
        (Column("DAY"), Column("SPIDER", spare=True), Column("ITEM", "bold"), Column("FIELD"),
         Column("CHECKED", right=True), Column("FILLED", right=True), Column("FAULTY", right=True),
         Column("SCORE", "cyan", right=True), Column("RULES BROKEN", "red", fold=True)),
        [
            (one.tally.day, one.tally.spider, _item(one.tally), _field(one.tally), one.tally.checked,
             _share(one.filled), one.tally.faulty, _share(one.score),
             ", ".join(f"{rule} {count}" for rule, count in one.rules[:RULES_SHOWN]))
            for one in shown
        ],
    )  # fmt: skip
    if spider is None:
        advise((f"gossamer quality {scores[-1].tally.spider}", "field by field"))
    else:
        advise(
            ("gossamer dead list --reason quality", "pages that were held back"),
            ("gossamer dead replay --reason quality", "parse them again, when the spider is mended"),
        )


def scores_of(tallies: list[Tally]) -> list[Score]:
    """Counts with the rules that belong to them, by day, spider, item; whole items before their fields."""
    rules: dict[tuple[str, str, str, str], list[tuple[str, int]]] = defaultdict(list)
    for one in tallies:
        if one.rule and one.faulty:
            for field in {one.field, WHOLE}:
                rules[one.day, one.spider, one.type, field].append((one.rule, one.faulty))
    scores = [
        Score(tally=one, rules=_summed(rules[one.day, one.spider, one.type, one.field]))
        for one in tallies
        if not one.rule
    ]
    return sorted(scores, key=lambda one: (one.tally.day, one.tally.spider, one.tally.type, one.tally.field))


def _summed(rules: list[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    total: dict[str, int] = {}
    for rule, count in rules:
        total[rule] = total.get(rule, 0) + count
    return tuple(sorted(total.items(), key=lambda one: (-one[1], one[0])))


def _item(tally: Tally) -> str:
    return "(pages)" if tally.type == WHOLE else tally.type


def _field(tally: Tally) -> str:
    return "(all)" if tally.field == WHOLE else tally.field


def _share(value: float) -> str:
    return f"{value:.1%}" if 0 < value < 1 else f"{value:.0%}"
