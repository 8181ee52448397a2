"""`gossamer incident`: what is wrong, with what changed, what failed, who was told, and what to do."""

from __future__ import annotations

from ..project.alerts.incidents import OPERATIONS
from .operations import add_operations

add_operations("incident", "Incidents: list, show with all that is known, close.", OPERATIONS)
