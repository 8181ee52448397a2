"""Names: which files are recipes, and what a spider may be called."""

from __future__ import annotations

import unicodedata
from itertools import groupby

ENDINGS = (".toml", ".yaml", ".yml")
LONGEST_NAME = 60  # characters


def is_recipe_name(name: str) -> bool:
    """Could a file of this name be a recipe?"""
    return name.lower().endswith(ENDINGS)


def composed(name: str) -> str:
    """The name with each letter and its accents as one: file systems and keyboards differ in that."""
    return unicodedata.normalize("NFC", name)


def is_spider_name(name: str) -> bool:
    """Letters and digits of any script, - and _, and none of these two at the beginning."""
    return (
        0 < len(name) <= LONGEST_NAME and name[0].isalnum() and all(_is_letter(char) or char in "-_" for char in name)
    )


def spider_name_of(stem: str) -> str:
    """The name for a file: `Book_Shop` is book-shop, `größe` is größe; `recipe` where no letter is in it."""
    words = ["".join(run) for kept, run in groupby(composed(stem).lower(), _is_letter) if kept]
    return "-".join(words)[:LONGEST_NAME].strip("-") or "recipe"


def _is_letter(char: str) -> bool:
    # Many scripts write vowels as marks on a letter; these are no letters of their own.
    return char.isalnum() or unicodedata.category(char).startswith("M")
