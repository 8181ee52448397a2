"""`gossamer note`: notes of people on jobs, sites and charts."""

from __future__ import annotations

from ..project.jobs.notes import OPERATIONS
from .operations import add_operations

add_operations("note", "Notes on jobs, sites, incidents and charts: add, list, remove.", OPERATIONS)
