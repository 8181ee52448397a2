"""How often the fields of a spider's records change, from their history: what `heal` expects of new pages.

What it does: counts the changes of every field between the versions of some records, over the time in which these
were checked, and says which share of the values is likely to be another one after the time since then. How it fails:
records that were seen once say nothing, and then there is no share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import msgspec

from ...model.record import StoredRecord
from ...store.contract import RecordHistory

MOST_RECORDS = 100  # whose history is read
_ENOUGH = 5  # times of the gap that all records together were watched
_LEAST = 5  # records that were checked more than once


async def field_changes(
    store: RecordHistory, records: Sequence[StoredRecord], fields: Sequence[str], now: float
) -> dict[str, float]:
    """The share of values of each field that changes until `now`; nothing for records that say too little."""
    step = -(-len(records) // MOST_RECORDS) or 1
    watched = [one for one in records[::step] if one.last_checked > one.first_seen]
    if len(watched) < _LEAST:
        return {}
    gap = max(now - median(one.last_checked for one in watched), 0.0)
    observed = sum(one.last_checked - one.first_seen for one in watched)
    if observed < _ENOUGH * gap:
        return {}
    counted: Counter[str] = Counter()
    for one in watched:
        if one.version > 1:
            versions = await store.history(one.type, one.site, one.key)
            data = [msgspec.json.decode(found.data, type=dict[str, Any]) for found in versions if not found.gone]
            for before, after in pairwise(data):
                counted.update(changed_fields(before, after, fields))
    # A field that never changed may still do so: half a change is added.
    return {name: 1 - math.exp(-(counted[name] + 0.5) * gap / observed) for name in fields}


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any], fields: Sequence[str]) -> list[str]:
    """The fields that have another value in `after`."""
    return [name for name in fields if before.get(name) != after.get(name)]
