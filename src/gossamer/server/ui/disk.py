"""The view of the disks: what each store takes, how fast it grows, and when its disk is full."""

from __future__ import annotations

from ...model.disk import UPKEEP, Upkeep
from ...model.shelf import ShelfKind
from ...project.access.keys import METRICS
from ...project.upkeep.disk import disks
from .view import Context, View, Visit

AGES = ("attempts", "pages", "copies", "jobs", "dead", "audit")


async def list_region(visit: Visit) -> Context:
    terms = visit.project.settings.retention
    return {
        "disks": await disks(visit.project),
        "ages": {name: getattr(terms, name) for name in AGES},
        "every": terms.every,
        "last": await ShelfKind(visit.project.state.shelf, UPKEEP, Upkeep).get("last"),
    }


VIEWS = (
    View("/ui/disk", "Disks", "disk.html", {"listed": list_region}, METRICS, group="Operate", live=False),
)  # fmt: skip
