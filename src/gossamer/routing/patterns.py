"""Which pages of a site are alike for routing, and what is known of a page from similar ones. Pure.

Routes are learned by pattern: that scripts fill product pages says nothing about the site's images and feeds. A pattern
is the host, the first folder and the file type; names and numbers below that are wildcards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .contract import LearnedRoute

AGREED = 3  # patterns that must need a dearer route before unseen ones begin there too
LONGEST = 200  # characters of a pattern
PAGES = frozenset(
    {"", "html", "htm", "xhtml", "shtml", "php", "php5", "asp", "aspx", "jsp", "jspx", "do", "cfm", "cgi"}
)
OF_SCRIPTS = ("shell", "shrunk")  # blocks that depend on how a page is made, not on the visitor

_NUMBERS = re.compile(r"\d+")
_ENDING = re.compile(r"\.([a-z0-9]{1,5})$")


def pattern_of(url: str) -> str:
    """`shop.example/p/*` for http://shop.example/p/red-lamp-17, `shop.example/img/*.png?w` for a picture of it."""
    host, slash, rest = url.partition("://")[2].partition("#")[0].partition("/")
    path, _, query = rest.partition("?")
    folder, inner, last = path.rpartition("/")
    ending = _ENDING.search(last.lower())
    first = _NUMBERS.sub("0", folder.partition("/")[0])
    deeper = "/*" * folder.count("/")
    name = f"*{ending[0] if ending else ''}" if last else ""
    names = "&".join(sorted({_NUMBERS.sub("0", part.partition("=")[0]) for part in query.split("&") if part})[:3])
    return f"{host.lower()}{slash}{first}{deeper}{inner}{name}{'?' + names if names else ''}"[:LONGEST]


def kind_of(pattern: str) -> str:
    """The file extension of a pattern; "" for pages without one."""
    name = pattern.partition("?")[0].rpartition("/")[2]
    return name.rpartition(".")[2] if "." in name else ""


def known_for(rows: Sequence[LearnedRoute], pattern: str) -> LearnedRoute | None:
    """What is known of a page of that pattern: its own row, else that of the whole site if it applies to such a
    file."""
    whole = None
    for row in rows:
        if row.pattern == pattern:
            return row
        if not row.pattern:
            whole = row
    if whole is not None and whole.reason in OF_SCRIPTS and kind_of(pattern) not in PAGES:
        return None
    return whole


def agree(rows: Sequence[LearnedRoute], route: str) -> bool:
    """Do enough patterns of a site need this route to conclude that the whole site does?"""
    return not any(not row.pattern for row in rows) and sum(row.route == route for row in rows) >= AGREED
