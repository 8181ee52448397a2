"""A web server that misbehaves, byte by byte: every path of it is wrong in its own way.

    async with hostile_site() as site:
        site.url("/endless"); site.log; site.seen("/endless")

This is its door. Behind it: hostile_server.py (the server), hostile_wire.py and hostile_pages.py (the paths).
"""

from __future__ import annotations

from . import hostile_wire  # noqa: F401  # importing it registers its paths
from .hostile_pages import BOMB_SIZE, bomb, huge_robots, noise, pack
from .hostile_server import PAGE, Call, HostileSite, Reply, Seen, head, hostile_site, path, whole

__all__ = [
    "BOMB_SIZE", "PAGE", "Call", "HostileSite", "Reply", "Seen", "bomb", "head", "hostile_site", "huge_robots",
    "noise", "pack", "path", "whole",
]  # fmt: skip
