"""Yes or no in a text, by words that a recipe names. Words are whole words: `available` is not in "unavailable".

Of several words that stand there the longest decides, so that "not in stock" weighs more than "in stock". A word that
is denied ("not yet available") does not count. Where two of the same length say the opposite, nothing is decided.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_NEGATIONS = frozenset((
    "not", "no", "never", "cannot", "non", "nicht", "kein", "keine", "keinen", "nie", "ne", "pas", "jamais",
    "aucun", "aucune", "sans", "sin", "nunca", "senza", "não", "nao", "sem", "niet", "geen", "nooit", "inte", "ej",
    "ingen", "inga", "ikke", "ei", "eivät", "brak", "není", "nejsou", "не", "нет", "без", "немає", "ні",
))  # fmt: skip
_CLAUSE_END = re.compile(r"[.,;:!?()|/•·–—\n]|\s-\s")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_LONGEST = 100_000  # characters that are looked at
_LOOK_BACK = 40  # characters before a word in which its denial must stand
_NEAR = 2  # words: "no longer available"


class Torn(Exception):
    """Words of both sides stand in the text, and none of them is longer."""


def decided(text: str, true: tuple[str, ...], false: tuple[str, ...]) -> bool | None:
    """What the text says; None when none of the words stands in it. Raises Torn."""
    folded = fold(text[:_LONGEST])
    yes, no = (_longest(folded, words) for words in (true, false))
    if yes == no:
        if yes:
            raise Torn
        return None
    return yes > no


def fold(text: str) -> str:
    """How words are compared: without case, with single spaces."""
    return " ".join(text.split()).casefold()


def _longest(text: str, words: tuple[str, ...]) -> int:
    """The length of the longest of the words that stands in the text; 0 for none."""
    return max((len(word) for word in map(fold, words) if word and _stands_in(text, word)), default=0)


def _stands_in(text: str, word: str) -> bool:
    return any(not _is_denied(text, at) for at in _places(text, word))


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not _joined(text[at - 1 : at], word[0]) and not _joined(word[-1], text[end : end + 1]):
            yield at
        at = text.find(word, at + 1)


def _joined(left: str, right: str) -> bool:
    """Do two neighbours belong to one word?"""
    return _in_a_word(left) and _in_a_word(right)


def _in_a_word(char: str) -> bool:
    # Chinese, Japanese, Thai and their like are written without spaces, and Korean hangs endings on: there every place
    # may be the border of a word.
    return char.isalnum() and not (char >= "\u2e80" or "\u0e00" <= char <= "\u0eff" or "\u1000" <= char <= "\u17ff")


def _is_denied(text: str, at: int) -> bool:
    clause = _CLAUSE_END.split(text[max(0, at - _LOOK_BACK) : at])[-1]
    return any(
        word in _NEGATIONS or word.endswith(("n't", "n’t")) or word.startswith(("n'", "n’"))
        for word in _WORD.findall(clause)[-_NEAR:]
    )
