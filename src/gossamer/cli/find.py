"""`gossamer find`: anything of the project by its name, address or key."""

from __future__ import annotations

from ..project.search import SEARCH
from .app import app
from .operations import add_commands

add_commands(app, (SEARCH,))
