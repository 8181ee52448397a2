"""The view of a page over time: its copies, what changed between them, and a selector tried on each."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...project.access.keys import JOBS, SCRAPE
from ...project.pages.playground import KINDS, Kind
from ...project.pages.versions import copy_changes, page_copies, picture_of, try_on_copies
from .dead_letters import FRAME
from .view import Context, FileAnswer, View, Visit, missing

Id = Annotated[str, Meta(max_length=40)]
TEXT_SHOWN = 20_000  # characters


class CopyFilters(msgspec.Struct, frozen=True, kw_only=True):
    url: Annotated[str, Meta(max_length=2083)] = ""
    copy: Id = ""
    against: Id = ""
    kind: Kind = "css"
    selector: Annotated[str, Meta(max_length=2000)] = ""


async def list_region(visit: Visit) -> Context:
    chosen = visit.of(CopyFilters)
    found = await page_copies(visit.project, visit.pages, visit.caller, chosen.url) if chosen.url else None
    return {"found": found, "kinds": KINDS}


async def tried(visit: Visit) -> Context:
    chosen = visit.of(CopyFilters)
    if not chosen.url or not chosen.selector:
        return {"tried": None}
    copies = await page_copies(visit.project, visit.pages, visit.caller, chosen.url)
    kind, selector = chosen.kind, chosen.selector
    return {"tried": await try_on_copies(visit.project, visit.pages, visit.caller, copies, kind, selector)}


async def changed(visit: Visit) -> Context:
    chosen = visit.of(CopyFilters)
    if not chosen.url:
        return {"found": None}
    url, copy, against = chosen.url, chosen.copy, chosen.against
    found = await copy_changes(visit.project, visit.pages, visit.caller, url, copy, against)
    return {"found": found, "most": TEXT_SHOWN}


async def picture(visit: Visit) -> Response:
    chosen = visit.of(CopyFilters)
    image = await picture_of(visit.project, visit.pages, visit.caller, chosen.url, chosen.copy)
    if not image:
        raise missing("picture of that copy")
    return Response(image, headers=FRAME, media_type="image/png")


VIEWS = (
    View("/ui/copies", "A page over time", "copies.html", {"listed": list_region, "tried": tried, "changed": changed},
         JOBS, query=CopyFilters, or_scope=SCRAPE, group="Inspect", live=False),
)  # fmt: skip
DOWNLOADS = (FileAnswer(path="/ui/copies/picture", handler=picture, query=CopyFilters, scope=JOBS, or_scope=SCRAPE),)
