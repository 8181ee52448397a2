"""The view of the search in the head of every page."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...project.access.keys import JOBS
from ...project.search import Hit, SearchQuery, search
from .templates import link, segment
from .view import Context, View, Visit


class SearchFilters(msgspec.Struct, frozen=True, kw_only=True):
    q: Annotated[str, Meta(max_length=2083)] = ""


async def found(visit: Visit) -> Context:
    words = visit.of(SearchFilters).q.strip()
    hits = await search(visit.project, visit.caller, SearchQuery(q=words)) if words else []
    return {"hits": [(hit, address_of(hit)) for hit in hits]}


def address_of(hit: Hit) -> str:
    """The view of what was found."""
    match hit.kind:
        case "spider":
            return link("/ui/boards/spiders", q=hit.name)
        case "site":
            return f"/ui/queue/{segment(hit.name)}"
        case "job":
            return f"/ui/jobs/{segment(hit.name)}"
        case "incident":
            return f"/ui/incidents/{segment(hit.name)}"
        case "record":
            return link("/ui/record", type=hit.type, site=hit.site, key=hit.name)
        case "dead letter":
            return f"/ui/dead/{segment(hit.job)}/{hit.id}"
        case _:
            return link("/ui/why", url=hit.name)


VIEWS = (
    View("/ui/search", "Search", "search.html", {"found": found}, JOBS, query=SearchFilters, live=False),
)  # fmt: skip
