"""Where a shop is at home: its country, and what one pays with there.

Several currencies share a sign: "$", "¥", "kr". The country in the address decides which is meant, and after it the
language of the page. Endings that the whole world uses (".co") name no country by themselves.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

# Countries whose currency shares its sign with another one.
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
# Endings that shops of all countries use; behind another one (".com.co") they do name the country.
_WORLDWIDE = frozenset(("bz", "co", "sh"))
_LANGUAGES = {
    "zh": "CNY", "ja": "JPY", "sv": "SEK", "nb": "NOK", "nn": "NOK", "no": "NOK", "da": "DKK", "is": "ISK",
    "cs": "CZK", "si": "LKR", "ne": "NPR", "ur": "PKR", "hi": "INR",
}  # fmt: skip
_SECOND = frozenset(("com", "co", "net", "org", "shop", "store"))
_PARTS = re.compile(r"[-_]")


def currencies_at(url: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    """The currencies of the address's country and of the languages' ("en-AU", "zh_TW"), the address first."""
    found = [_of_address(url), *(code for language in languages for code in _of_language(language))]
    return tuple(dict.fromkeys(code for code in found if code))


def _of_address(url: str) -> str:
    try:
        parts = (urlsplit(url).hostname or "").rstrip(".").split(".")
    except ValueError:
        return ""
    if len(parts) < 2 or (parts[-1] in _WORLDWIDE and (len(parts) < 3 or parts[-2] not in _SECOND)):
        return ""
    return _CURRENCIES.get(parts[-1], "")


def _of_language(language: str) -> tuple[str, ...]:
    """The currency of the language's region, and the one of most who speak it."""
    first, *others = _PARTS.split(language.strip().lower()[:20])
    region = next((part for part in others if len(part) == 2), "tw" if "hant" in others else "")
    return _CURRENCIES.get(region, ""), _LANGUAGES.get(first, "")
