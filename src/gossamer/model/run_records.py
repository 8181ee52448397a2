"""What a run did to the records: one account, which the record store counts from the history of records when the run
ends, and which every list, page and message shows. Values without I/O.

    new        no run had seen it before
    changed    its content is another one
    back       it had been marked as gone, and was found again, with the same content or with other
    unchanged  seen, and as it was
    gone       marked as gone by this run
    unseen     earlier runs saw it and this one did not, for instance because its page failed; it is not marked as gone

The first four add up to the records that the run saw. The account of items (item_account.py) counts what pages yielded
instead: two pages may yield the same record.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from ..units import many

DifferenceKind: TypeAlias = Literal["added", "changed", "back", "again", "gone", "unseen"]  # what became of a record


class RunRecords(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`unseen` is None where it was not counted: while the run goes on, or when it did not come to its end because
    of its limit, say. `kept` says why records that were not seen are not marked as gone."""

    new: int = 0
    changed: int = 0
    back: int = 0
    unchanged: int = 0
    gone: int = 0
    unseen: int | None = None
    kept: str = ""

    @property
    def seen(self) -> int:
        return self.new + self.changed + self.back + self.unchanged

    @property
    def known(self) -> int:
        """How many of those seen the site had before: each of them would have been unseen otherwise."""
        return self.changed + self.unchanged

    @property
    def in_words(self) -> str:
        """`21 seen = 2 new + 3 changed + 16 unchanged; 1 marked as gone, 1 not seen`"""
        parts = [f"{count:,} {name}" for name in SEEN_AS if (count := getattr(self, name))]
        words = f"{self.seen:,} seen = {' + '.join(parts)}" if parts else "none seen"
        rest = [f"{self.gone:,} marked as gone"] if self.gone else []
        rest += [f"{self.unseen:,} not seen"] if self.unseen else []
        return "; ".join([words, ", ".join(rest)] if rest else [words])

    @property
    def changes(self) -> str:
        """`2 new, 3 changed, 1 back, 1 gone`; without what there is none of, and "nothing new" if there is nothing."""
        parts = [f"{count:,} {name}" for name in CHANGES if (count := getattr(self, name))]
        return ", ".join(parts) or "nothing new"

    @property
    def why_kept(self) -> str:
        """Why records that were not seen are not gone, as a sentence; "" if all were seen."""
        if not self.unseen or not self.kept:
            return ""
        verb = "was not seen and is" if self.unseen == 1 else "were not seen and are"
        return f"{many(self.unseen, 'record')} {verb} not marked as gone: {self.kept}."


SEEN_AS = ("new", "changed", "back", "unchanged")
CHANGES = ("new", "changed", "back", "gone")
