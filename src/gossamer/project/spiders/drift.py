"""Values that drift: a rule still finds something, but not what it found before. An early warning, never a decision.

What it does: compares what the newest run found with what the same records had before, and with what the spider's other
records have. `field_drift` decides, without I/O: amounts by their level, texts by their length and by how many differ,
dates by their shift. What sites do honestly is no drift: prices that move, sales and their end, goods that are sold
out, another assortment. How it fails: few values, and spiders that ran once, say nothing; BackendUnavailable.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from statistics import median
from typing import Any, NamedTuple, TypeVar

import msgspec

from ...model.healing import LAYOUT, LayoutChange
from ...model.record import StoredRecord
from ...model.shelf import ShelfKind
from ...store.contract import RecordQuery
from ...units import many
from ..open import Project

T = TypeVar("T")

KEPT_IN_MIND = timedelta(days=14)  # a drift that lasts longer is how things are
RUNS_ASKED = 200  # the newest jobs, among which is that of the spider
MOST_RECORDS = 3_000  # that are looked at
MOST_WATCHED = 300  # whose history is read
_FEWEST, _ENOUGH = 10, 20  # values: for signs that are no chance, and for those that could be
_MOST_EXAMPLES = 5
_ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?:$|T)")
# Of prices. Honest ones move both ways, and rise together when a sale ends: then they were there before.
_LEVEL = math.log(3)  # most prices do not triple, or fall to a third, from one run to the next
_FAR = math.log(8)  # the same for two sets of different things
_RISE, _RISING, _ONE_WAY = 1.1, 0.3, 6  # of one price; share of all; times as many as fell
# Of other numbers, which may grow from nothing: only a factor that all of them have.
_FACTOR, _SAME_FACTOR = math.log(5), 0.35
_ALIKE, _DIFFERENT, _KNOWN_BEFORE = (
    0.8,
    0.5,
    0.2,
)  # shares of the most common value: now, before, and of this one before
_FEW_KINDS = 5  # values of an enumeration, which may well be all the same for a while
_UNIQUE, _REPEATED = 0.9, 0.4  # share of texts that differ, before and now
_LONGER, _MOST = math.log(3), 0.6  # of a text; share of the texts
_LARGEST = 700.0  # of a logarithm
_YEAR, _SWAPPED = 365, 0.4  # days; share of the dates


class Past(NamedTuple):
    """A record that the run saw: what it had in each version before, oldest first, and what was found now."""

    key: str
    before: tuple[Any, ...]
    now: Any


class FieldDrift(msgspec.Struct, frozen=True, kw_only=True):
    """A field whose values are of another kind than they were. `examples`: key, before and now."""

    type: str
    field: str
    sign: str  # currency, level, scale, rise, constant, alike, length, dates
    words: str
    examples: list[tuple[str, str, str]]


def field_drift(
    type: str, field: str, watched: Sequence[Past], fresh: Sequence[Any] = (), former: Sequence[Any] = ()
) -> FieldDrift | None:
    """What speaks against the values of a field. `fresh` are those of new records, `former` those of records that the
    run did not see; they count where too few records were seen twice."""
    pairs = [one for one in watched if one.before and not _is_empty(one.before[-1]) and not _is_empty(one.now)]
    paired = len(pairs) >= _FEWEST
    was = [one.before[-1] for one in pairs] if paired else [one for one in former if not _is_empty(one)]
    now = [one.now for one in pairs] if paired else [one for one in fresh if not _is_empty(one)]
    if min(len(was), len(now)) < (_FEWEST if paired else _ENOUGH):
        return None
    for read, signs in _KINDS:
        if _mostly(was, read) and _mostly(now, read):
            some = [
                Past(one.key, tuple(_read(read, one.before)), read(one.now))
                for one in pairs
                if read(one.before[-1]) is not None and read(one.now) is not None
            ]
            told = signs(some if paired else [], _read(read, was), _read(read, now))
            if told is not None:
                return FieldDrift(
                    type=type, field=field, sign=told[0], words=f"{field} {told[1]}", examples=_examples(pairs)
                )
            break
    return None


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or value == []


def _mostly(values: Sequence[Any], read: Callable[[Any], Any]) -> bool:
    return sum(read(one) is not None for one in values) >= 0.9 * len(values)


def _read(read: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    return [value for one in values if (value := read(one)) is not None]


def _examples(pairs: Sequence[Past]) -> list[tuple[str, str, str]]:
    changed = [one for one in pairs if one.before[-1] != one.now]
    return [(one.key, _shown(one.before[-1]), _shown(one.now)) for one in changed[:_MOST_EXAMPLES]]


def _shown(value: Any) -> str:
    if (price := _price(value)) is not None:
        return f"{price[0]:.2f} {price[1]}".rstrip()
    return str(value)[:80]


# -- how stored values read ----------------------------------------------------------------------------------------


def _price(value: Any) -> tuple[float, str] | None:
    if not isinstance(value, dict) or "amount" not in value:
        return None
    amount = _finite(value["amount"])
    return (amount, str(value.get("currency") or "")) if amount is not None else None


def _number(value: Any) -> float | None:
    """A boolean is none: everything may be sold out."""
    return _finite(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _finite(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _day(value: Any) -> date | None:
    if not isinstance(value, str) or _ISO_DAY.match(value) is None:
        return None
    try:
        return date.fromisoformat(value[:10])
    except ValueError:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# -- the signs -----------------------------------------------------------------------------------------------------

Told = tuple[str, str] | None  # the sign, and words that follow the name of the field


def _of_prices(pairs: Sequence[Past], was: Sequence[tuple[float, str]], now: Sequence[tuple[float, str]]) -> Told:
    (usual, most), *_ = Counter(currency for _, currency in was).most_common(1)
    kept = sum(currency == usual for _, currency in now)
    if most >= 0.9 * len(was) and kept < 0.5 * len(now):
        other = Counter(currency for _, currency in now if currency != usual).most_common(1)[0][0]
        return (
            "currency",
            f"was in {usual or 'no currency'}, and {len(now) - kept} of {len(now)} are in {other or 'none'}",
        )
    amounts = [Past(one.key, tuple(amount for amount, _ in one.before), one.now[0]) for one in pairs]
    told = _constant([amount for amount, _ in was], [amount for amount, _ in now])
    if told is not None:
        return told
    ratios = _log_ratios(amounts)
    if len(ratios) >= _FEWEST and abs(median(ratios)) >= _LEVEL:
        return "level", _times(median(ratios), len(ratios))
    if not pairs:
        far = median(_logs(now)) - median(_logs(was)) if _logs(now) and _logs(was) else 0.0
        return ("level", _times(far, len(now))) if abs(far) >= max(_FAR, 3 * _spread(_logs(was))) else None
    return _rise(amounts)


def _rise(amounts: Sequence[Past]) -> Told:
    """Prices that nearly all went up, above everything they were before: another price of the page was taken."""
    some = [one for one in amounts if one.before[-1] > 0]
    up = [one.now / one.before[-1] for one in some if one.now >= _RISE * max(one.before)]
    down = sum(one.now * _RISE <= one.before[-1] for one in some)
    if len(some) < _ENOUGH or len(up) < max(_FEWEST, _RISING * len(some)) or len(up) < _ONE_WAY * down:
        return None
    return "rise", (
        f"rose in {len(up)} of {many(len(some), 'item')} at once, by {median(up) - 1:.0%} in the middle, above what"
        f" they ever were, and fell in {down}: a list price, or another price of the page"
    )


def _of_numbers(pairs: Sequence[Past], was: Sequence[float], now: Sequence[float]) -> Told:
    told = _constant(was, now)
    if told is not None:
        return told
    ratios = _log_ratios(pairs)
    if len(ratios) >= _FEWEST and abs(median(ratios)) >= _FACTOR and _spread(ratios) <= _SAME_FACTOR:
        return "scale", _times(median(ratios), len(ratios))
    return None


def _of_days(pairs: Sequence[Past], was: Sequence[date], now: Sequence[date]) -> Told:
    told = _constant(was, now)
    if told is not None or len(pairs) < _ENOUGH:
        return told
    shifts = [(one.now - one.before[-1]).days for one in pairs]
    swapped = sum(
        one.now != one.before[-1] and (one.now.month, one.now.day) == (one.before[-1].day, one.before[-1].month)
        for one in pairs
    )
    if swapped >= _SWAPPED * sum(one.before[-1].day <= 12 for one in pairs) and swapped >= _FEWEST // 2:
        return "dates", f"has day and month exchanged in {swapped} of {many(len(pairs), 'item')}"
    if abs(median(shifts)) >= _YEAR:
        return "dates", f"moved by {median(shifts):.0f} days in the middle of {many(len(pairs), 'item')}"
    return None


def _of_texts(pairs: Sequence[Past], was: Sequence[str], now: Sequence[str]) -> Told:
    told = _constant(was, now)
    if told is not None or len(now) < _ENOUGH:
        return told
    if len(set(was)) >= _UNIQUE * len(was) and len(set(now)) <= _REPEATED * len(now):
        return "alike", f"differed from item to item, and has only {len(set(now))} values in {many(len(now), 'item')}"
    if pairs:
        grew = [math.log(len(one.now) / len(one.before[-1])) for one in pairs]
        for way in (1, -1):
            if sum(way * one >= _LONGER for one in grew) >= _MOST * len(grew):
                return "length", f"is {_factor(median(grew))} as long in most of {many(len(pairs), 'item')}"
    return None


_KINDS: tuple[tuple[Callable[[Any], Any], Callable[[Any, Any, Any], Told]], ...] = (
    (_price, _of_prices),
    (_number, _of_numbers),
    (_day, _of_days),
    (_text, _of_texts),
)


def _constant(was: Sequence[Any], now: Sequence[Any]) -> Told:
    before, ((common, count),) = Counter(was), Counter(now).most_common(1)
    if len(before) <= _FEW_KINDS or common == 0:
        return None  # nothing in stock is no mistake
    new = before[common] <= _KNOWN_BEFORE * len(was)
    if count >= _ALIKE * len(now) and before.most_common(1)[0][1] <= _DIFFERENT * len(was) and new:
        return "constant", f"is the same in {count} of {many(len(now), 'item')}, and had {len(before)} values before"
    return None


def _log_ratios(pairs: Sequence[Past]) -> list[float]:
    return [math.log(one.now) - math.log(one.before[-1]) for one in pairs if one.now > 0 and one.before[-1] > 0]


def _logs(prices: Sequence[tuple[float, str]]) -> list[float]:
    return [math.log(amount) for amount, _ in prices if amount > 0]


def _spread(values: Sequence[float]) -> float:
    """The median deviation, as a standard deviation."""
    middle = median(values)
    return 1.4826 * median(abs(one - middle) for one in values)


def _times(ratio: float, count: int) -> str:
    return f"is {_factor(ratio)} what it was, in the middle of {many(count, 'item')}"


def _factor(ratio: float) -> str:
    ratio = max(min(ratio, _LARGEST), -_LARGEST)
    return f"{math.exp(ratio):.3g} times" if ratio > 0 else f"1/{math.exp(-ratio):.3g} of"


def drift_words(drift: Sequence[FieldDrift]) -> str:
    """ "" without any."""
    told = "; ".join(one.words for one in drift)
    return f"The rules find values, but of another kind than before: {told}." if told else ""


# -- what the newest run found -------------------------------------------------------------------------------------


async def spider_drift(project: Project, spider: str) -> list[FieldDrift]:
    """What speaks against the values of the spider's newest run. While a warning is open, its run is the first one that
    is doubted."""
    since = await _doubted_since(project, spider)
    return await drift_since(project, spider, since) if since is not None else []


async def _doubted_since(project: Project, spider: str) -> float | None:
    change = await ShelfKind(project.state.shelf, LAYOUT, LayoutChange).get(spider)
    if change is not None and change.is_open and change.since > project.clock.now() - KEPT_IN_MIND.total_seconds():
        return change.since
    for job in await project.state.history.page(RUNS_ASKED):
        if job.spider_name == spider and not job.parses_again:
            return job.created_at
    return None


async def drift_since(project: Project, spider: str, since: float) -> list[FieldDrift]:
    """What speaks against the values that were found since then."""
    seen: dict[str, list[StoredRecord]] = {}
    former: dict[str, list[StoredRecord]] = {}
    count = 0
    async for record in project.records.records(RecordQuery(spider=spider, gone=False, newest=True)):
        into = seen if record.last_checked >= since else former
        into.setdefault(record.type, []).append(record)
        count += 1
        if count >= MOST_RECORDS:
            break
    found: list[FieldDrift] = []
    for type, records in seen.items():
        old = [one for one in records if one.first_seen < since]
        new = [one for one in records if one.first_seen >= since]
        versions = [(one, await _before(project, one, since)) for one in _spread_out(old)]
        for field in dict.fromkeys(name for one in records for name in one.data):
            watched = [
                Past(one.key, tuple(past.get(field) for past in before), one.data.get(field))
                for one, before in versions
            ]
            drift = field_drift(
                type,
                field,
                watched,
                [one.data.get(field) for one in new],
                [one.data.get(field) for one in former.get(type, ())],
            )
            if drift is not None:
                found.append(drift)
    return found


async def _before(project: Project, record: StoredRecord, since: float) -> list[dict[str, Any]]:
    if record.last_changed < since:
        return [record.data]
    versions = await project.records.history(record.type, record.site, record.key)
    return [msgspec.json.decode(one.data, type=dict[str, Any]) for one in versions if one.at < since and not one.gone]


def _spread_out(values: Sequence[T]) -> Iterator[T]:
    step = -(-len(values) // MOST_WATCHED) or 1
    yield from values[::step]
