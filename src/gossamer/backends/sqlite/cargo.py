"""What is carried from a state file: rows into items, in the order of the columns that carrying.py asks for. No I/O."""

from __future__ import annotations

from typing import Any

import msgspec

from ...frontier.carrying import CarriedJob, CarriedUrl
from ...model.job import JobTerms
from ...model.task import UrlState

STATES = tuple(state.value for state in UrlState)
EXTRAS = ("discovered", "duplicates", "retries", "redirected")

Row = tuple[Any, ...]  # Any: the types of a row are those of the schema, which is STRICT


def carried_job(row: Row, states: dict[str, int]) -> CarriedJob:
    """`states` is how many URLs of the job there are in each state."""
    number, id_, name, state, sealed, paused, ending, created_at, finished_at, terms, *counters = row
    counted = dict(zip(STATES, counters[len(EXTRAS) :], strict=True))
    return CarriedJob(
        number=number,
        id=id_,
        name=name,
        state=state,
        sealed=bool(sealed),
        paused=bool(paused),
        ending=ending,
        created_at=created_at,
        finished_at=finished_at,
        terms=msgspec.json.decode(terms, type=JobTerms),
        forgotten={name: n - states.get(name, 0) for name, n in counted.items() if n != states.get(name, 0)},
        **dict(zip(EXTRAS, counters, strict=False)),
    )


def carried_url(row: Row, incidents: tuple[tuple[float, str], ...]) -> CarriedUrl:
    (_, job, site, fingerprint, url, state, reason, message, priority, depth, attempts, deliveries, max_attempts,
     due_at, created_at, changed_at, kind, data, redirects, fetcher, proxy_pool, country, how, parent,
     parent_site) = row  # fmt: skip
    return CarriedUrl(
        job=job,
        site=site,
        fingerprint=fingerprint,
        url=url,
        state=UrlState.QUEUED if state == UrlState.LEASED else UrlState(state),
        reason=reason,
        message=message,
        priority=priority,
        depth=depth,
        attempts=attempts,
        deliveries=deliveries,
        max_attempts=max_attempts,
        due_at=due_at if state == UrlState.WAITING else None,
        created_at=created_at,
        changed_at=changed_at,
        kind=kind,
        data=data,
        redirects=msgspec.json.decode(redirects, type=tuple[str, ...]) if redirects else (),
        fetcher=fetcher,
        proxy_pool=proxy_pool,
        country=country,
        how=how,
        parent=parent,
        parent_site=parent_site,
        incidents=incidents,
    )
