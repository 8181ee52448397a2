"""Numbers in the page's address, confirmed by the page: an address alone proves little."""

from __future__ import annotations

import re

from .claims import Claims
from .identity import PageIdentity
from .values import Source

_MOST_PLACES = 60  # places in the source where one number is looked for
_KEY = re.compile(r"([A-Za-z][\w.:-]{0,40})[\"'\]]{0,2}\s{0,3}[:=]\s{0,3}[\"'\[]{0,2}$")
_SKU = re.compile(
    r"sku|article|artikel|item-?_?(?:id|no|num|code)|asin|product_?-?(?:code|no|num|id)|prod_?-?id|offer_?-?id"
    r"|listing_?-?id|(?<![a-z])ad_?-?id|goods_?-?id|catentry|^pid$|codart|adno|partnumber",
    re.IGNORECASE,
)
_ID = re.compile(r"(?:^|[^a-z])id$|Id$|value|content|code|ref", re.IGNORECASE)


def claim_address(claims: Claims, identity: PageIdentity, source: bytes) -> int:
    """Note the address's numbers, surer where the page uses them under a telling name. Gives how many are confirmed.

    `source` is the page as it came: the numbers are ASCII, so there is no need to decode it.
    """
    confirmed = 0
    for rank, number in enumerate(identity.numbers[:6]):
        telling = plain = 0
        wanted = number.encode()
        at = -1
        for _ in range(_MOST_PLACES):
            at = source.find(wanted, at + 1)
            if at < 0:
                break
            end = at + len(wanted)
            if source[end : end + 1].isalnum():
                continue
            key = _KEY.search(source[max(0, at - 50) : at].decode("ascii", "replace"))
            if key is None:
                continue
            if _SKU.search(key[1]):
                telling += 1
            elif _ID.search(key[1]):
                plain += 1
        sure = 0.62 if telling >= 2 else 0.55 if telling else 0.4 if plain >= 2 else 0.3 if plain else 0.15
        confirmed += telling > 0
        claims.add("sku", number, Source.ADDRESS, sure - 0.02 * rank)
        if telling >= 2:
            break  # the others stand further from being one
    return confirmed
