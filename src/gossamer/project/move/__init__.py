"""Carrying a project elsewhere: `move` does it, sides.py opens and judges both ends, comparing.py proves the result."""

from __future__ import annotations

from .move import ROLES, MoveReport, Watch, move
from .sides import Part, place

__all__ = ["ROLES", "MoveReport", "Part", "Watch", "move", "place"]
