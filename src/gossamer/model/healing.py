"""Healed rules of a recipe as the state keeps them: a layer above the recipe's file, in versions. Values without I/O.

They are data, never code: sources as a recipe writes them, read by the reader of recipes. The layer holds for one text
of the file; when the file changes it ends.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Any

import msgspec

RULES, LAYOUT = "healed-rules", "layout-change"  # kinds on the shelf; the key is the name of the spider
VERSIONS_KEPT = 20
EACH = "(each)"  # in place of a field: the blocks of a list
FILE = 0  # in place of a version: the rules of the file alone


class HealedField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New sources for a field, to be tried before those of the file, and the evidence for them."""

    kind: str
    field: str
    sources: tuple[dict[str, Any], ...]  # as in a recipe
    agree: int = 0
    known: int = 0
    since: int = 0  # the version that brought these sources

    @property
    def place(self) -> tuple[str, str]:
        return self.kind, self.field


class RulesVersion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All healed fields of a recipe at one time. `former` is the version that was in use before it."""

    version: int
    text: str  # a hash of the file for which it was learned
    at: float
    by: str  # who applied it; "auto" if nobody
    fields: tuple[HealedField, ...]
    former: int = FILE


class HealedRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The versions of a spider's healed rules, oldest first; `current` is in use. The seal of the project's key covers
    all of it (schedule/authority.py)."""

    spider: str
    versions: tuple[RulesVersion, ...] = ()
    current: int = FILE
    seal: str = ""

    def version(self, number: int) -> RulesVersion | None:
        return next((one for one in self.versions if one.version == number), None)

    def in_use(self, text: str) -> RulesVersion | None:
        """The version that holds for a file with this text; None: the file alone."""
        one = self.version(self.current)
        return one if one is not None and one.text == text_hash(text) else None

    def with_fields(self, text: str, fields: tuple[HealedField, ...], *, at: float, by: str) -> HealedRules:
        """A new version with these fields; those of the version in use stay, behind the new ones of the same field."""
        held = self.in_use(text)
        number = max((one.version for one in self.versions), default=FILE) + 1
        merged = {one.place: one for one in (held.fields if held is not None else ())}
        for one in fields:
            before = merged[one.place].sources if one.place in merged else ()
            sources = (*one.sources, *(table for table in before if table not in one.sources))
            merged[one.place] = msgspec.structs.replace(one, sources=sources, since=number)
        new = RulesVersion(
            version=number,
            text=text_hash(text),
            at=at,
            by=by,
            fields=tuple(merged.values()),
            former=held.version if held is not None else FILE,
        )
        return msgspec.structs.replace(self, versions=(*self.versions, new)[-VERSIONS_KEPT:], current=number)

    def without_current(self, text: str) -> HealedRules:
        """The version before is in use again."""
        held = self.in_use(text)
        former = self.version(held.former) if held is not None else None
        kept = former is not None and former.text == text_hash(text)
        return msgspec.structs.replace(self, current=former.version if former is not None and kept else FILE)


class LayoutState(StrEnum):
    FOUND = "found"  # new rules were learned, or none could be; a person decides
    APPLIED = "applied"  # rules are in use; the next run will show whether they are right
    DOUBTFUL = "doubtful"  # the next run says otherwise
    UNLEARNED = "unlearned"  # learning was broken off
    OVER = "over"


class LayoutChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A new layout that a recipe met: in which job, with how many dead letters when it was looked at, and what is to be
    said of it. `evidence` is what was learned, as `gossamer heal --json` prints it."""

    spider: str
    job: str
    letters: int
    at: float
    state: LayoutState
    words: str
    healed: int = 0  # fields with sure rules
    version: int = FILE  # of the healed rules, if some were taken into use
    evidence: msgspec.Raw = msgspec.Raw(b"null")
    since: float = 0.0  # when the run began whose values are the first that are doubted; 0.0: none are
    counted: dict[str, tuple[int, int]] = {}  # by type and field: values checked and filled on that day, until then

    @property
    def is_open(self) -> bool:
        return self.state is not LayoutState.OVER


def text_hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()
