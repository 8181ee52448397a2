"""`gossamer override`: settings that are set by hand while workers run."""

from __future__ import annotations

from ..project.overrides import OPERATIONS
from .operations import add_operations

add_operations("override", "Settings that are set by hand while workers run: set, list, remove.", OPERATIONS)
