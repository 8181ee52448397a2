"""The view of the disks: what each store takes, how fast it grows, and when its disk is full."""

from __future__ import annotations

from ...model.disk import UPKEEP, Upkeep
from ...model.shelf import ShelfKind
from ...project.access.keys import METRICS
from ...project.upkeep.disk import disks
from .view import Context, View, Visit

AGES = ("attempts", "pages", "copies", "jobs", "dead", "audit")


async def listed(visit: Visit) -> Context:
    terms = visit.project.settings.retention
    return {
        "disks": await disks(visit.project),
        "ages": {name: getattr(terms, name) for name in AGES},
        "every": terms.every,
        "last": await ShelfKind(visit.project.state.shelf, UPKEEP, Upkeep).get("last"),
    }


VIEWS = (
    View(
        path="/ui/disk",
        title="Disks",
        template="disk.html",
        regions={"listed": listed},
        scope=METRICS,
        group="Operate",
        live=False,  # sizes change slowly, and are read from the disk
    ),
)
