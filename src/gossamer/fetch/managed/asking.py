"""What a vendor is asked, as values, and how long one looks after a job. Pure: nothing is sent here."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import quote

from ...errors import ApiFailed
from ..contract import Limits, TransportRequest
from .answers import ODD_WAIT, garbage
from .api import Call
from .vendor import BODY, Parameter, Vendor

_ENVELOPE = 64 * 1024  # what JSON adds to a page, beside the codes for its characters
_GONE = frozenset({401, 402, 403, 404, 407, 410})  # a job that is asked for again will not come any more


def question(vendor: Vendor, exchange: TransportRequest, path: str) -> Call:
    """The call for one page, at once or as a job."""
    limits = exchange.limits
    parameters = item_of(vendor, exchange)
    in_query = vendor.table.send == "query"
    return Call(
        method=vendor.table.method,
        path=path,
        parameters=parameters if in_query else (),
        body=None if in_query else dict(parameters),
        limit=limits.max_body if vendor.body.kind == BODY else answer_limit(limits),
        timeout=min(vendor.table.timeout, limits.total),
        connect=limits.connect,
        on_sent=exchange.on_sent,
    )


def item_of(vendor: Vendor, exchange: TransportRequest) -> tuple[Parameter, ...]:
    """What the vendor is told about one page."""
    table = vendor.table
    found: list[Parameter] = [(table.url_param, exchange.url)]
    if vendor.render is not None and (table.render or exchange.render is not None):
        found.append(vendor.render)
        if table.wait_for_param and exchange.render is not None and exchange.render.wait_for:
            found.append((table.wait_for_param, exchange.render.wait_for))
    if vendor.residential is not None and table.residential:
        found.append(vendor.residential)
    country = exchange.country or table.country
    if country and table.country_param:
        found.append((table.country_param, country.lower()))
    return (*found, *vendor.extra)


def job_id_of(vendor: Vendor, told: str | None) -> str:
    """The id as part of a path. Raises ApiFailed for one that cannot be."""
    if not told or len(told) > 256 or told in (".", ".."):
        raise garbage(vendor, "it tells no id of the job")
    return quote(told, safe="")


def look_at(vendor: Vendor, path: str, job: str, limits: Limits, *, limit: int, within: timedelta) -> Call:
    """The call for the state of a job. It ends with the time that is left for the job."""
    return Call(
        method="GET",
        path=path.replace("{id}", job),
        limit=limit,
        timeout=min(vendor.table.timeout, max(within, timedelta(seconds=1))),
        connect=limits.connect,
        asks=False,
    )


def patience(failure: ApiFailed, wait: timedelta) -> timedelta:
    """How long to wait after a look at a job that failed. Raises the failure when there is no use in another one."""
    if failure.status in _GONE:
        raise failure
    return max(wait, failure.wait) if failure.status == 429 else wait


def never_finished(vendor: Vendor) -> ApiFailed:
    within = vendor.table.deadline.total_seconds()
    return ApiFailed(
        f"Managed API {vendor.name}: the job was not finished within {within:g} s ({vendor.setting('deadline')}), and "
        "was abandoned.",
        wait=ODD_WAIT,
    )


def answer_limit(limits: Limits) -> int:
    """A page of the longest permitted size, written as JSON or in base64."""
    return 3 * limits.max_body + _ENVELOPE
