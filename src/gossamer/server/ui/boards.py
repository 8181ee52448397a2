"""The boards: spiders and sites, one row each, with their last runs as squares."""

from __future__ import annotations

from ...errors import Misconfigured
from ...model.outcome import Outcome
from ...project.access.keys import JOBS
from ...project.boards.boards import BoardQuery, site_board, spider_board
from ..answers import ApiError
from .view import Context, View, Visit

COLOURS = {Outcome.DONE.value: "ok", Outcome.WARNINGS.value: "warn", "limit": "ok", "cancelled": "quiet"}
OTHER = "bad"


async def spiders(visit: Visit) -> Context:
    return {**await _board(visit, "spiders"), "what": "spider"}


async def sites(visit: Visit) -> Context:
    return {**await _board(visit, "sites"), "what": "site"}


async def _board(visit: Visit, kind: str) -> Context:
    query = visit.of(BoardQuery)
    read = spider_board if kind == "spiders" else site_board
    try:
        board = await read(visit.project, visit.caller, query)
    except Misconfigured as error:
        raise ApiError(422, "invalid", str(error)) from error
    return {
        "board": board,
        "address": f"/ui/boards/{kind}",
        "filtered": bool(query.q or query.state),
        "colours": COLOURS,
        "other": OTHER,
    }


VIEWS = (
    View("/ui/boards/spiders", "Boards", "board.html", {"rows": spiders}, JOBS, query=BoardQuery, group="Work"),
    View("/ui/boards/sites", "Board of sites", "board.html", {"rows": sites}, JOBS, query=BoardQuery),
)  # fmt: skip
