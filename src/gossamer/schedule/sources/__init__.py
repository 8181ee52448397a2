"""Sources of URLs: lists and ranges, files, programs, sitemaps, feeds. `parse_source` reads what users write, `entries`
of reader.py yields the URLs; commands that only look at jobs need not load it.

Reading order: kinds.py (the kinds of source, and how they are shown without secrets), url_patterns.py (braces),
source_table.py (from gossamer.toml), contract.py (what comes out, and what is needed from outside), reader.py
(`entries`), then what it reads with: url_lists.py, gzip_file.py, command.py, sitemap_walk.py.
"""

from .contract import (
    ListedSitemap,
    SourceBatch,
    SourceBounds,
    SourceContext,
    SourceDownload,
    SourceEntry,
    Validators,
    believable,
)
from .kinds import (
    CommandSource,
    FeedSource,
    FileSource,
    Listing,
    PagesSource,
    SitemapSource,
    SiteSource,
    StartSource,
    UrlSource,
    UrlsSource,
    WantedPage,
    count_of,
    describe,
    discreet,
    only_changed,
    source_of,
    without_secrets,
)
from .source_table import SOURCE_KEYS, parse_source

__all__ = [
    "SOURCE_KEYS",
    "CommandSource",
    "FeedSource",
    "FileSource",
    "ListedSitemap",
    "Listing",
    "PagesSource",
    "SiteSource",
    "SitemapSource",
    "SourceBatch",
    "SourceBounds",
    "SourceContext",
    "SourceDownload",
    "SourceEntry",
    "StartSource",
    "UrlSource",
    "UrlsSource",
    "Validators",
    "WantedPage",
    "believable",
    "count_of",
    "describe",
    "discreet",
    "only_changed",
    "parse_source",
    "source_of",
    "without_secrets",
]  # fmt: skip
