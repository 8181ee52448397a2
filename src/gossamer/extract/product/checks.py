"""Cross-checks the claims about a product once all of them are known.

A brand that is also in the title or the address gains confidence; one found only somewhere on the page loses some.
Labels are cut from values. An article number that is a phrase is dropped. If the price in the data is struck through on
the page, the visible price beside it wins. A clearly labelled number beside the title beats a number in the data that
is only the one in the address, which may stand for a group of articles.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from ...model.money import Money
from .claims import Claim, Claims, Source
from .identifiers import without_label
from .identity import PageIdentity

_SEEN = (Source.PAGE, Source.SCRIPT)
_SKU_IN_SCRIPT = re.compile(
    rb"""["']?\bsku["']?\s{0,3}:\s{0,3}(?:["']([A-Za-z0-9][A-Za-z0-9_./-]{2,40})["']|([0-9]{3,20})\b)"""
)
_MOST_SOURCE = 3_000_000  # bytes of a page searched for such a number
_WORDS = re.compile(r"\w+")
_SURE_LABEL = 0.79  # confidence of a number with a clear label close to the title


def check_claims(claims: Claims, identity: PageIdentity, source: bytes) -> None:
    _check_brand(claims, identity)
    _check_number(claims, identity, source)
    _check_price(claims)


def _check_brand(claims: Claims, identity: PageIdentity) -> None:
    host = _squeezed(urlsplit(identity.url).netloc)
    names = [_squeezed(name) for name in identity.names]

    def checked(claim: Claim) -> Claim | None:
        value = without_label(str(claim.value), "brand")
        squeezed = _squeezed(value)
        if not squeezed or squeezed.isdigit():
            return None
        sure = claim.confidence
        if any(squeezed in name for name in names):
            sure = 1 - (1 - sure) * 0.6
        elif claim.source in _SEEN and squeezed not in host:
            sure *= 0.85
        return Claim(value, claim.source, sure)

    claims.revise("brand", checked)


def _check_number(claims: Claims, identity: PageIdentity, source: bytes) -> None:
    def checked(claim: Claim) -> Claim | None:
        text = without_label(str(claim.value), "sku")
        words = text.split()
        phrase = len(words) > 3 or (len(words) > 1 and not any(char.isdigit() for char in text))
        return Claim(text, claim.source, claim.confidence * (0.3 if phrase else 1.0))

    claims.revise("sku", checked)
    labelled = [one for one in claims.of("sku") if one.source is Source.PAGE and one.confidence >= _SURE_LABEL]
    settled = claims.settle("sku")
    if (
        settled is not None
        and len(labelled) == 1
        and settled.source != Source.PAGE.value
        and identity.names_number(str(settled.value))
        and not identity.names_number(str(labelled[0].value))
    ):
        claims.add("sku", labelled[0].value, Source.PAGE, settled.confidence + 0.01)
    if claims.surest("sku") < 0.5:
        found = _SKU_IN_SCRIPT.findall(source, 0, _MOST_SOURCE)
        numbers = {(quoted or bare).decode("ascii") for quoted, bare in found}
        if len(numbers) == 1:
            claims.add("sku", numbers.pop(), Source.SCRIPT, 0.55)


def _check_price(claims: Claims) -> None:
    settled = claims.settle("price")
    seen = [one for one in claims.of("price") if one.source is Source.PAGE]
    struck = {one.value.amount for one in claims.of("regular_price") if one.source is Source.PAGE}
    if settled is None or settled.value.amount not in struck:
        return
    if not any(one.value.amount < settled.value.amount and one.confidence >= 0.5 for one in seen):
        return

    def checked(claim: Claim) -> Claim:
        money: Money = claim.value
        return claim if money.amount not in struck else Claim(money, claim.source, claim.confidence * 0.3)

    claims.revise("price", checked)


def _squeezed(text: str) -> str:
    return "".join(_WORDS.findall(text[:400].casefold()))
