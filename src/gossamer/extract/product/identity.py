"""`PageIdentity`: decides whether a part of a page is about the page's own product or about another one.

A page is identified by its address and its title. A block of data belongs to the page's product if it has the same
address, its name resembles the title, or its number is in the address.

The address also gives the country of the shop. Several currencies share a symbol ("$", "¥", "kr"): the country in the
address decides, then the language of the page. Domains used worldwide (".co") do not give a country by themselves.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from itertools import islice
from urllib.parse import SplitResult, unquote, urlsplit

from turbohtml import Document, Element

_WORD = re.compile(r"\w+")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*")
_TRACKING = re.compile(r"^(utm_|gclid|fbclid|ref$|mc_|spm$)", re.IGNORECASE)
_ENDING = re.compile(r"\.(?:s?html?|php|aspx?|jsp|do)$", re.IGNORECASE)
_LONGEST_NAME = 400
# Countries whose currency shares its symbol with another one.
_CURRENCIES = {
    # Dollars and pesos
    "us": "USD", "au": "AUD", "ca": "CAD", "nz": "NZD", "hk": "HKD", "sg": "SGD", "tw": "TWD", "mx": "MXN",
    "ar": "ARS", "cl": "CLP", "co": "COP", "uy": "UYU", "do": "DOP", "bb": "BBD", "bm": "BMD", "bn": "BND",
    "bs": "BSD", "bz": "BZD", "fj": "FJD", "gy": "GYD", "jm": "JMD", "ky": "KYD", "lr": "LRD", "na": "NAD",
    "sb": "SBD", "sr": "SRD", "tt": "TTD", "ni": "NIO",
    # Yen and yuan
    "jp": "JPY", "cn": "CNY",
    # Crowns
    "se": "SEK", "no": "NOK", "dk": "DKK", "is": "ISK", "cz": "CZK",
    # Pounds
    "gb": "GBP", "uk": "GBP", "eg": "EGP", "lb": "LBP", "sy": "SYP", "gi": "GIP", "fk": "FKP", "sh": "SHP",
    # Rupees
    "in": "INR", "pk": "PKR", "lk": "LKR", "np": "NPR", "mu": "MUR", "sc": "SCR",
    # Others
    "ro": "RON", "md": "MDL", "sa": "SAR", "qa": "QAR", "om": "OMR", "ye": "YER", "ir": "IRR", "ae": "AED",
    "ma": "MAD", "bo": "BOB", "ve": "VES", "cm": "XAF", "ga": "XAF", "cg": "XAF", "td": "XAF", "cf": "XAF",
    "gq": "XAF", "ci": "XOF", "sn": "XOF", "ml": "XOF", "bf": "XOF", "bj": "XOF", "tg": "XOF", "ne": "XOF",
}  # fmt: skip
# Top-level domains used worldwide; after another one (".com.co") they do give the country.
_WORLDWIDE = frozenset(("bz", "co", "sh"))
_LANGUAGES = {
    "zh": "CNY", "ja": "JPY", "sv": "SEK", "nb": "NOK", "nn": "NOK", "no": "NOK", "da": "DKK", "is": "ISK",
    "cs": "CZK", "si": "LKR", "ne": "NPR", "ur": "PKR", "hi": "INR",
}  # fmt: skip
_SECOND = frozenset(("com", "co", "net", "org", "shop", "store"))
_PARTS = re.compile(r"[-_]")


class PageIdentity:
    """The addresses and names of one page."""

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
        """The currencies of the country in the address and of the page's language, most telling first."""
        return _currencies_at(self.url, self._languages)

    @cached_property
    def names(self) -> list[str]:
        """The names that the page gives itself, the most telling first."""
        return [name for name in (*self.headings[:2], self.social, self.page_title) if name]

    @cached_property
    def _words(self) -> list[frozenset[str]]:
        return [words for words in (_words(name) for name in self.names) if words]

    def likeness(self, name: str) -> float:
        """How much of a name is in one of the page's names, 0 to 1."""
        words = _words(name)
        return max((_overlap(words, own) for own in self._words), default=0.0)

    @staticmethod
    def likeness_to(name: str, others: list[str]) -> float:
        """How much of a name is in one of the others, 0 to 1."""
        words = _words(name)
        return max((_overlap(words, _words(other)) for other in others), default=0.0)

    def is_here(self, address: str) -> bool:
        """True when the address is this page's, apart from tracking parameters and fragments."""
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
        """True if the page's address contains the number, ignoring separators between its digits."""
        squeezed = _squeezed(number)
        return len(squeezed) >= 4 and squeezed in self._whole

    @cached_property
    def numbers(self) -> list[str]:
        """Parts of the address that may be the product's number, the most likely first."""
        parts = _parts_of(self.url)
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
    """True for a text that may be an article number: it has digits, no spaces, and a plausible length."""
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
    """The share of the words that the other name also has; a much longer name is not similar."""
    if not words or not own:
        return 0.0
    shared = len(words & own)
    return shared / len(words) if len(words) <= len(own) else 2 * shared / (len(words) + len(own))


def _words(name: str) -> frozenset[str]:
    return _words_of(name[:_LONGEST_NAME])


@lru_cache(maxsize=512)
def _words_of(name: str) -> frozenset[str]:
    return frozenset(_WORD.findall(name.casefold()))


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]+", "", text[:2000]).casefold()


def _bare(address: str) -> str:
    """The path of an address, which names the page on its site, in lower case."""
    parts = _parts_of(address[:2000] if address.isprintable() else "")
    return unquote(parts.path).rstrip("/").casefold() or "/"


def _parts_of(address: str) -> SplitResult:
    """The parts of an address, empty for an invalid one: pages write anything where an address is expected."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _currencies_at(url: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    """The currency of the country in the address, then those of the languages ("en-AU", "zh_TW")."""
    found = [_currency_of_address(url), *(code for language in languages for code in _currencies_of_language(language))]
    return tuple(dict.fromkeys(code for code in found if code))


def _currency_of_address(url: str) -> str:
    try:
        parts = (urlsplit(url).hostname or "").rstrip(".").split(".")
    except ValueError:
        return ""
    if len(parts) < 2 or (parts[-1] in _WORLDWIDE and (len(parts) < 3 or parts[-2] not in _SECOND)):
        return ""
    return _CURRENCIES.get(parts[-1], "")


def _currencies_of_language(language: str) -> tuple[str, ...]:
    """The currency of the language's region, and that of most of its speakers."""
    first, *others = _PARTS.split(language.strip().lower()[:20])
    region = next((part for part in others if len(part) == 2), "tw" if "hant" in others else "")
    return _CURRENCIES.get(region, ""), _LANGUAGES.get(first, "")
