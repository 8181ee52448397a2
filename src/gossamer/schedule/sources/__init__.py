"""Sources of URLs: lists and ranges, files, programs, sitemaps, feeds. `parse_source` reads what users write,
`entries` gives the URLs.

Here: patterns.py (braces), tables.py (the kinds of source), reading.py (from gossamer.toml), contract.py (what comes
out, and what is needed from outside), lists.py, commands.py and walking.py (one kind each), packing.py (gzip),
hiding.py (what is not shown), giving.py (`entries`).
"""

from .contract import Batch, Bounds, Child, Context, Download, Entry, Validators, believable
from .giving import entries
from .hiding import discreet
from .reading import SOURCE_KEYS, parse_source
from .tables import (
    Command,
    FeedSource,
    File,
    Listing,
    Sitemap,
    Source,
    Start,
    Urls,
    count_of,
    describe,
    only_changed,
    source_of,
    without_secrets,
)

__all__ = [
    "SOURCE_KEYS", "Batch", "Bounds", "Child", "Command", "Context", "Download", "Entry", "FeedSource", "File",
    "Listing", "Sitemap", "Source", "Start", "Urls", "Validators", "believable", "count_of", "describe", "discreet",
    "entries", "only_changed", "parse_source", "source_of", "without_secrets",
]  # fmt: skip
