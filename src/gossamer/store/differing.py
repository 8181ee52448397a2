"""What two jobs saw differently of one record, decided without I/O for every record store alike."""

from __future__ import annotations

import msgspec

from .contract import Difference, Identity


class Seen(msgspec.Struct, frozen=True):
    """A record that at least one of two jobs saw, and in which versions: None not at all, 0 in one that is not kept."""

    record: int
    before: int | None
    after: int | None

    @property
    def may_differ(self) -> bool:
        if self.before is None or self.after is None:
            return True
        return self.before != self.after and self.before > 0 and self.after > 0


def difference(identity: Identity, url: str, seen: Seen, before: str | None, after: str | None) -> Difference | None:
    """The difference, if there is one; `before` and `after` are the data of the versions seen, None when not kept."""
    type_, site, key = identity
    if seen.before is None:
        return Difference(kind="added", type=type_, site=site, key=key, url=url, after=after)
    if seen.after is None:
        return Difference(kind="gone", type=type_, site=site, key=key, url=url, before=before)
    if before is None or after is None or before == after:  # changed and changed back is no difference
        return None
    return Difference(kind="changed", type=type_, site=site, key=key, url=url, before=before, after=after)
