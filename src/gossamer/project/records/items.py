"""The account of a job's items, as people read it: in the summary of a crawl, `status`, `job show` and the dashboard.

The numbers are those of model/item_account.py, and there are no others.
"""

from __future__ import annotations

import logging
from collections import Counter

import msgspec

from ...errors import BackendUnavailable
from ...model.item_account import OTHER_REASONS, REASON_OF_STEP, STATE_WORDS, STATES, Conflict, ItemCounts
from ...units import many
from ..open import Project

MOST_NAMED = 4  # reasons
log = logging.getLogger(__name__)


async def items_of(project: Project, job: str) -> ItemCounts | None:
    """The account of a job's items; None if the record store does not answer."""
    if project.absent:
        return None
    try:
        return await project.records.items(job)
    except BackendUnavailable as error:
        log.warning("Items were not counted: %s", error)
        return None


def sum_in_words(counts: ItemCounts) -> str:
    """`100 yielded = 90 new + 10 unchanged`"""
    states = counts.states()
    parts = [f"{states[name]:,} {STATE_WORDS.get(name, name)}" for name in STATES if name in states]
    return f"{counts.yielded:,} yielded = {' + '.join(parts)}" if parts else "none yielded"


def reasons_in_words(counts: ItemCounts) -> str:
    """Why items were held back or dropped: `9 by the quality guard, 2 by no_stock: sold out`. Of a step that gives many
    reasons, the largest stands for all: `79 by no_stock, such as "sold out: lamp"`"""
    by_step: dict[str, Counter[str]] = {}
    for name, count in counts.reasons.items():
        by_step.setdefault(name.partition(REASON_OF_STEP)[0], Counter())[name] += count
    others = sum(by_step.pop(OTHER_REASONS, Counter()).values())
    reasons: Counter[str] = Counter()
    for step, names in by_step.items():
        if len(names) <= MOST_NAMED:
            reasons += names
        else:
            example = next(name for name, _ in names.most_common() if not name.endswith(OTHER_REASONS))
            reasons[f'{step}, such as "{example.removeprefix(step + REASON_OF_STEP)}"'] = names.total()
    words = [f"{count:,} by {reason}" for reason, count in reasons.most_common(MOST_NAMED)]
    others += reasons.total() - sum(count for _, count in reasons.most_common(MOST_NAMED))
    return ", ".join([*words, f"{others:,} for other reasons"] if others else words)


def shared_in_words(counts: ItemCounts) -> str:
    """That another spider writes the same records; "" if none does."""
    if not counts.shared:
        return ""
    return (
        f"{many(counts.shared, 'item belongs', 'items belong')} to records that the spider {counts.shared_with} writes"
        " as well: the last one to see a change replaces the whole record"
    )


async def found_items(project: Project, job: str) -> str:
    """What became of the items of a job, in words; "" if it yielded none. Raises Transient."""
    counts = await project.records.items(job)
    return sum_in_words(counts) if counts.yielded else ""


async def conflicts_of(project: Project, job: str) -> str:
    """How many items of a job share a key with a different item, an example, and what to do; "" if none does.
    Raises Transient."""
    counts = await project.records.items(job)
    if not counts.conflict:
        return ""
    words = f"{many(counts.conflict, 'item shares', 'items share')} a key with a different item"
    example = counts.example
    if example is None:
        return words
    fields = await _key_fields(project, example)
    named = " + ".join(f"`{field}`" for field in fields)
    verb = "is" if len(fields) == 1 else "are together"
    return (
        f"{words}: {named} {verb} not unique on these pages, like {example.type} {example.key} of {example.url}. Of"
        f" each, one is kept; name fields that tell them apart (class {example.type}(Item, key=...))"
    )


async def _key_fields(project: Project, example: Conflict) -> list[str]:
    """The fields that are the key of this type; `url` if it declares none."""
    fields: list[str] = []
    for schema, _ in await project.records.schemas(example.type):
        fields = msgspec.json.decode(schema.definition).get("key", [])
    return fields or ["url"]
