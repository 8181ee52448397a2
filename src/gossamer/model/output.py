"""What the state keeps of an output: how far it has come, rows that its target refused, and what it still has to
erase."""

from __future__ import annotations

import msgspec

OUTPUT = "output"  # kinds of rows on the shelf
DEAD_ROW = "output-dead"
ERASURE = "erasure"


class OutputProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an output has come: everything stored before the cursor `after` is in its target. In a round, what was
    stored between `after` and `upto` is written, in the order of records, and `beyond` is the number of the last one
    written.

    `fence` grows with each process that takes the output over: a target refuses a smaller one. `epoch` grows with each
    order of a person (pause, resume, rewind), so that work in progress notices.
    """

    name: str
    id: str  # random: tells this output apart from others of the same name, in a target that they share
    fence: int = 0
    epoch: int = 0
    after: str | None = None
    upto: str | None = None
    beyond: int = 0
    passed: int = 0  # records of this round so far
    batches: int = 0
    written: int = 0  # changes, those that were written again included
    paused: bool = False
    misconfigured: bool = False  # it stopped with `error`; resume, or other settings, make it try again
    error: str = ""
    error_at: float | None = None
    began_at: float | None = None  # when a process took it over first
    written_at: float | None = None
    all_written_at: float | None = None  # when nothing was left to write
    terms: str = ""  # a hash of its settings
    altered: tuple[str, ...] = ()  # types of columns that the target has changed in a table of ours, with the time


class DeadRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that the target of an output refused, and why. It is tried again when its record changes, and by a
    rewind."""

    output: str
    type: str
    site: str
    key: str
    url: str
    reason: str
    at: float


class ErasedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record that outputs must erase: its identity, and the data from which a row's key is made."""

    type: str
    site: str
    key: str
    url: str
    data: dict[str, object]


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """Records to erase, and the outputs that have not done so yet. It is deleted when no output is left."""

    id: str
    at: float
    records: tuple[ErasedRecord, ...]
    waiting: tuple[str, ...]
