"""Web sites that the tests crawl. `park` is friendly and huge, in a process of its own; its log is the truth."""

from .running import Hit, Park, park

__all__ = ["Hit", "Park", "park"]
