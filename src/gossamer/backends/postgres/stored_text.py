"""Converts texts to what PostgreSQL can hold, and back. schema/records-001.sql explains the rules to readers of the
tables.

PostgreSQL refuses NUL and lone surrogates in text and jsonb. A NUL is stored with an escape that is undone on reading;
a lone surrogate means nothing and becomes U+FFFD, as in every record store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from ...model.item import safe_text
from ...model.record import PageResult
from ...store.record_rules import is_utf8, mend, texts_of, with_texts

ESCAPE = "\ufdd0"  # a code point that Unicode keeps free for uses like this one
_ESCAPED = {"\0": ESCAPE + "0", ESCAPE: ESCAPE + "1"}
_SPECIAL = re.compile("[\0\ufdd0]")
_ESCAPE_PAIR = re.compile("\ufdd0([01])")
_UNESCAPED = {"0": "\0", "1": ESCAPE}

# Escapes that are valid JSON but not jsonb: NUL and surrogates. A surrogate pair would be valid; detecting it is not
# worth the effort.
_NOT_JSONB = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


def to_stored(text: str) -> str:
    """The text as it is stored in the table."""
    return _SPECIAL.sub(lambda found: _ESCAPED[found[0]], mend(text))


def read(text: str) -> str:
    """The text as it was before `to_stored`."""
    return _ESCAPE_PAIR.sub(lambda found: _UNESCAPED[found[1]], text) if ESCAPE in text else text


def stored_results(results: Sequence[PageResult]) -> Sequence[PageResult]:
    """The results with all their texts as `to_stored` makes them; the same objects if no text needs it, which
    is the usual case."""
    whole = texts_of(results)
    if "\0" not in whole and ESCAPE not in whole and is_utf8(whole):
        return results
    return [with_texts(result, to_stored) for result in results]


def identity_of(*texts: str) -> bytes:
    """The hash under which a record is found: of type, site and key. The texts are as stored, so that NUL can separate
    them."""
    return blake2b("\0".join(texts).encode(), digest_size=16).digest()


def queryable(source: str) -> str | None:
    """The JSON text with what jsonb refuses replaced by U+FFFD; None if it is not JSON.

    Rare refusals (NaN, numbers of more than 100,000 digits) are not detected here; see `strictly_queryable`.
    """
    plain = ESCAPE not in source and _NOT_JSONB.search(source) is None
    return source if plain else strictly_queryable(source)


def strictly_queryable(source: str) -> str | None:
    """As `queryable`, at any cost: parsed and written anew. NaN and infinity become null."""
    try:
        return json.dumps(_cleaned(json.loads(read(source), parse_constant=lambda _: None)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _cleaned(value: Any) -> Any:  # whatever JSON holds
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, list):
        return [_cleaned(entry) for entry in value]
    if isinstance(value, dict):
        return {safe_text(name): _cleaned(entry) for name, entry in value.items()}
    return value
