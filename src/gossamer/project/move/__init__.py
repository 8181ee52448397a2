"""Moving a project to other addresses, and its backups. Reading order:

stores.py       the three stores at a set of addresses, and what a copy demands of them
move.py         `move`: from one set of addresses to another
proof.py        both sides of a move, compared
"""

from __future__ import annotations

from .move import MoveReport, Watch, move
from .stores import ROLES, Part, place

__all__ = ["ROLES", "MoveReport", "Part", "Watch", "move", "place"]
