"""Drafting a recipe from pages: groups of like links (groups.py), stable selectors (pointing.py), the fields of a
product or an article (fields.py), and the text with its comments (writing.py, draft.py)."""

from __future__ import annotations

from .draft import Draft as Draft
from .draft import Drafting as Drafting
