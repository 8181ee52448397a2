"""`gossamer board`: spiders and sites, one row each, with their last runs."""

from __future__ import annotations

from ..project.boards.boards import OPERATIONS
from .operations import add_operations

add_operations("board", "Boards: spiders and sites, one row each, with their last runs.", OPERATIONS)
