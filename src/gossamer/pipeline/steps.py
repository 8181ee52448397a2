"""The pipeline: from what a spider gave to what is stored. Steps in order: clean, validate, the user's own,
validate again if there were any, deduplicate.

How it fails: an item that lacks required fields, or a step that raises, is a ParseFailed for the whole page. A step
may also drop an item, with a reason; the rest of the page goes on. How it recovers: nothing is stored before all
items of the page are through, so the page can simply be parsed again.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from ..cancelling import is_cancellation
from ..errors import ParseFailed
from ..model.item import AnyItem, Item, content_hash, item_data, item_key, safe_text, type_name, validate
from ..model.record import Record
from ..model.url import site_of
from .clean import clean


class PageLike(Protocol):
    """All that the pipeline itself needs to know of a page; steps get the page they know from spiders."""

    @property
    def url(self) -> str: ...


class Drop(msgspec.Struct, frozen=True):
    """What a step returns to leave an item out."""

    reason: str


Step: TypeAlias = Callable[..., Any]  # (item, page) -> item | Drop | None, plain or async


class Dropped(msgspec.Struct, frozen=True):
    step: str
    reason: str
    type: str = ""


class Piped(msgspec.Struct, frozen=True):
    """What is to be stored, and what was left out at which step and why."""

    records: list[Record]
    dropped: list[Dropped]


class Pipeline:
    """The steps of one spider. Immutable; shared by all pages."""

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self._steps = tuple((_name_of(step), step) for step in steps)

    async def run(self, items: Iterable[AnyItem], page: PageLike, *, spider: str, job: str, now: float) -> Piped:
        """Pass the items of one page through all steps. `now` is when they were scraped. Raises ParseFailed."""
        dropped: list[Dropped] = []
        kept: list[AnyItem] = []
        for item in items:
            checked = _checked(item)
            passed = await self._own_steps(checked, page, dropped) if self._steps else checked
            if passed is not None:
                kept.append(passed)
        site = site_of(page.url)
        return Piped(_records(kept, dropped, url=page.url, site=site, job=job, spider=spider, now=now), dropped)

    async def _own_steps(self, item: AnyItem, page: PageLike, dropped: list[Dropped]) -> AnyItem | None:
        for name, step in self._steps:
            try:
                result = step(item, page)
                if inspect.isawaitable(result):
                    result = await result
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a step may raise anything; it fails this page only
                if is_cancellation(error):
                    raise
                told = "".join(traceback.format_exception_only(error)).strip().rpartition("\n")[2]
                raise ParseFailed(
                    safe_text(f"The pipeline step {name} failed on a {type_name(item)} of {page.url}: {told[:500]}"),
                    detail=safe_text("".join(traceback.format_exception(error)))[-20_000:],
                ) from error
            if result is None or isinstance(result, Drop):
                reason = result.reason if result is not None else "the step gave nothing back"
                dropped.append(Dropped(name, reason, type_name(item)))
                return None
            if not isinstance(result, Item | dict):
                raise ParseFailed(
                    f"The pipeline step {name} gave a {type(result).__name__}."
                    f" It may give the item, Drop(reason) or None."
                )
            item = result
        return validate(item)


def _checked(item: AnyItem) -> AnyItem:
    try:
        return validate(clean(item))
    except RecursionError as error:
        raise ParseFailed(f"A {type_name(item)} is nested too deeply to be stored. Flatten it.") from error


def _name_of(step: Step) -> str:
    return str(getattr(step, "__name__", type(step).__name__))


def _records(
    items: list[AnyItem], dropped: list[Dropped], *, url: str, site: str, job: str, spider: str, now: float
) -> list[Record]:
    """One record per key, in order of first appearance. Of several the last wins, unless it says less."""
    winners: dict[tuple[str, str], tuple[AnyItem, str]] = {}
    for item in items:
        data = item_data(item)
        identity = (type_name(item), item_key(item))
        rival = winners.get(identity)
        if rival is not None:
            dropped.append(Dropped("deduplicate", f"another item of the page has the key {identity[1]}", identity[0]))
            if _filled(item) < _filled(rival[0]):
                continue
        winners[identity] = (item, data)
    return [
        Record(
            type=type_,
            site=site,
            key=key,
            url=url,
            job=job,
            spider=spider,
            data=data,
            content_hash=content_hash(data),
            scraped_at=now,
        )
        for (type_, key), (_, data) in winners.items()
    ]


def _filled(item: AnyItem) -> int:
    """How many fields say something."""
    values = item.values() if isinstance(item, dict) else msgspec.structs.asdict(item).values()
    return sum(1 for value in values if value is not None and value is not msgspec.UNSET and value not in ("", [], {}))
