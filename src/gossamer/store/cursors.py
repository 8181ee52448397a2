"""Marks in the stream of changes of a record store, as texts: which kind of store, which one of them, how far.

    sqlite:5f3c0a9be211:57

How it fails: `Misconfigured` for a mark that this store has not given. To go on from it would miss changes silently.
"""

from __future__ import annotations

from ..errors import Misconfigured


def write_cursor(kind: str, store: str, place: int) -> str:
    return f"{kind}:{store}:{place}"


def read_cursor(text: str, kind: str, store: str, newest: int) -> int:
    """The place that a mark names. `newest` is the one that the store would give now. Raises Misconfigured."""
    given, _, rest = text.partition(":")
    name, _, place = rest.partition(":")
    is_number = place.isascii() and place.isdigit() and len(place) < 20
    if given == kind and name == store and is_number and int(place) <= newest:
        return int(place)
    raise Misconfigured(
        "This mark is of another record store, or of a newer state of this one. Ask once for everything, without a "
        "mark, and go on from the mark that you get then."
    )
