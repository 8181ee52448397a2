"""What the state knows of outputs: how far each has come, rows that targets refused, and records to erase."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from secrets import token_hex

import msgspec

from ...model.output import DEAD_ROW, ERASURE, OUTPUT, DeadRow, Erasure, OutputProgress
from ...model.record import RecordIdentity
from ...model.shelf import Change, Shelf, ShelfKind, Trim

DEAD_ROWS = 1000  # kept, of all outputs together


class OutputBook:
    """What the state knows of outputs."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.progress = ShelfKind(shelf, OUTPUT, OutputProgress)
        self.dead = ShelfKind(shelf, DEAD_ROW, DeadRow)
        self.erasures = ShelfKind(shelf, ERASURE, Erasure)

    async def order(self, name: str, change: Callable[[OutputProgress], OutputProgress]) -> OutputProgress:
        """Change an output for a person: work in progress notices it by the epoch."""

        def ordered(known: OutputProgress | None) -> OutputProgress:
            new = change(known or OutputProgress(name=name, id=token_hex(8)))
            return msgspec.structs.replace(new, epoch=new.epoch + 1)

        changed = await self.progress.change(name, ordered)
        assert changed is not None
        return changed

    async def dead_rows(self, output: str, limit: int = DEAD_ROWS) -> list[DeadRow]:
        """The newest first."""
        found = await self.dead.timed(limit=DEAD_ROWS, newest=True, prefix=f"{output}/")
        return found[:limit]

    async def note_dead(self, rows: Sequence[DeadRow], mended: Sequence[str]) -> None:
        changes: list[Change] = [
            *(self.dead.put(dead_key(row.output, (row.type, row.site, row.key)), row, at=row.at) for row in rows),
            *(self.dead.drop(key) for key in mended),
        ]
        if changes:
            await self._shelf.commit([*changes, Trim(kind=DEAD_ROW, keep=DEAD_ROWS)])

    async def remove(self, name: str) -> int:
        """Forget an output; return how many records it has not erased, and was to."""
        left = 0
        for erasure in await self.erasures.all():
            if name in erasure.waiting:
                left += len(erasure.records)
                await self.erased(erasure, name)
        dead = [self.dead.drop(dead_key(name, (row.type, row.site, row.key))) for row in await self.dead_rows(name)]
        await self._shelf.commit([*dead, self.progress.drop(name)])
        return left

    async def erased(self, erasure: Erasure, output: str) -> None:
        """An output has erased these records."""

        def without(known: Erasure | None) -> Erasure | None:
            if known is None or known.at != erasure.at or output not in known.waiting:
                return known
            return msgspec.structs.replace(known, waiting=tuple(one for one in known.waiting if one != output))

        left = await self.erasures.change(erasure.id, without)
        if left is not None and not left.waiting:
            await self._shelf.commit([self.erasures.drop(erasure.id)])


def dead_key(output: str, identity: RecordIdentity) -> str:
    """The name of an output has no slash. Keys of records are long, and may hold anything: a hash is enough."""
    return f"{output}/{blake2b(msgspec.json.encode(identity), digest_size=12).hexdigest()}"


def rewound(progress: OutputProgress) -> OutputProgress:
    """At the first record again."""
    return msgspec.structs.replace(progress, after=None, upto=None, beyond=0, passed=0, epoch=progress.epoch + 1)
