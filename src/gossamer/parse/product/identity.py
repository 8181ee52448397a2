"""`PageIdentity`: how one knows that something in a page speaks about the page's own product and not of another.

A page names itself by its address and its title. A block of data belongs to the page's product when it has the
same address, when its name is like the title, or when its number stands in the address.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from itertools import islice
from urllib.parse import unquote, urlsplit

from turbohtml import Document, Element

from .home import currencies_at

_WORD = re.compile(r"\w+")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*")
_TRACKING = re.compile(r"^(utm_|gclid|fbclid|ref$|mc_|spm$)", re.IGNORECASE)
_ENDING = re.compile(r"\.(?:s?html?|php|aspx?|jsp|do)$", re.IGNORECASE)
_LONGEST_NAME = 400


class PageIdentity:
    """The addresses and names of a page."""

    def __init__(self, tree: Document, url: str, metas: dict[str, str]) -> None:
        self.url = url
        canonical = tree.select_one('link[rel~="canonical" i][href]')
        self._addresses = {
            _bare(address)
            for address in (url, canonical.attr("href") if canonical is not None else None, metas.get("og:url"))
            if address
        }
        headings = [_beginning(heading) for heading in tree.select("h1")[:5]]
        self.headings = [heading for heading in headings if heading]
        self._title = tree.select_one("title")
        root = tree.root
        self._languages = (root.attr("lang") or "" if root is not None else "", metas.get("og:locale") or "")
        self.social = _plain(metas.get("og:title") or metas.get("twitter:title") or "")

    @cached_property
    def page_title(self) -> str:
        return _beginning(self._title) if self._title is not None else ""

    @cached_property
    def home(self) -> tuple[str, ...]:
        """The currencies of the country that the address, or else the language, speaks of."""
        return currencies_at(self.url, self._languages)

    @cached_property
    def names(self) -> list[str]:
        """The names the page gives itself, the most telling first."""
        return [name for name in (*self.headings[:2], self.social, self.page_title) if name]

    @cached_property
    def _words(self) -> list[frozenset[str]]:
        return [words for words in (_words(name) for name in self.names) if words]

    def likeness(self, name: str) -> float:
        """How much of a name is in one of the page's names: 0 to 1."""
        words = _words(name)
        return max((_overlap(words, own) for own in self._words), default=0.0)

    @staticmethod
    def likeness_to(name: str, others: list[str]) -> float:
        """How much of a name is in one of the others: 0 to 1."""
        words = _words(name)
        return max((_overlap(words, _words(other)) for other in others), default=0.0)

    def is_here(self, address: str) -> bool:
        """True when the address is this page's, tracking and fragments apart."""
        if not address or _bare(address) not in self._addresses:
            return False
        # "item.php?id=7" is another page than "item.php?id=8".
        query = address[:2000].partition("?")[2].partition("#")[0]
        values = [pair.partition("=")[2] for pair in query.split("&")[:20]] if query else []
        return all(value in self.url for value in values if looks_like_number(value))

    @cached_property
    def _whole(self) -> str:
        return _squeezed(unquote(self.url))

    def names_number(self, number: str) -> bool:
        """True when the page's address holds the number as a word of its own, whatever marks are in it."""
        squeezed = _squeezed(number)
        return len(squeezed) >= 4 and squeezed in self._whole

    @cached_property
    def numbers(self) -> list[str]:
        """Parts of the address that may be the product's number, the most likely first."""
        parts = urlsplit(self.url)
        segments = [_ENDING.sub("", unquote(segment)) for segment in parts.path.split("/") if segment]
        found: list[str] = []
        for pair in parts.query.split("&")[:30]:
            name, _, value = pair.partition("=")
            if not _TRACKING.match(name) and looks_like_number(value):
                found.append(value)
        for segment in reversed(segments[-6:]):
            if looks_like_number(segment) and "-" not in segment:
                found.append(segment)
            words = re.split(r"[-_~,.]", segment)
            # The number ends or begins a readable address: "blue-shoe-12345", "12345-blue-shoe".
            for word in (words[-1], words[0]) if len(words) > 1 else ():
                if looks_like_number(word):
                    found.append(word)
        return list(dict.fromkeys(number[:60] for number in found))[:12]


def looks_like_number(text: str) -> bool:
    """True for what may be the number of an article: digits in it, no spaces, neither short nor endless."""
    return (
        3 <= len(text) <= 40
        and any(char.isdigit() for char in text)
        and sum(char.isdigit() for char in text) * 3 >= len(text)
        and _ID.fullmatch(text) is not None
    )


def _beginning(element: Element) -> str:
    return _plain(" ".join(islice(element.strings, 50)))


def _plain(text: str) -> str:
    return " ".join(text[: 4 * _LONGEST_NAME].split())[:_LONGEST_NAME]


def _overlap(words: frozenset[str], own: frozenset[str]) -> float:
    """The share of the words that are in the other's; a name far longer than the other is not like it."""
    if not words or not own:
        return 0.0
    shared = len(words & own)
    return shared / len(words) if len(words) <= len(own) else 2 * shared / (len(words) + len(own))


@lru_cache(maxsize=512)
def _words(name: str) -> frozenset[str]:
    return frozenset(_WORD.findall(name[:_LONGEST_NAME].casefold()))


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]+", "", text[:2000]).casefold()


def _bare(address: str) -> str:
    """An address without scheme, host, fragment and the query: what is left names the page on its site."""
    parts = urlsplit(address[:2000]) if address.isprintable() else urlsplit("")
    return unquote(parts.path).rstrip("/").casefold() or "/"
