"""Moving a project to other stores, and its backups. Reading order:

stores.py       the three stores at a set of addresses, and what a copy demands of them
copy.py         their rows on the way: out of a source, and into a target
backup.py       `backup` and `restore`: into one file, and back
backup_file.py  the format of that file
move.py         `move`: from one set of addresses to another
proof.py        both sides of a move, compared
"""

from __future__ import annotations

from .backup import BackupReport, backup, restore
from .backup_file import BackupHeader
from .copy import Watch
from .move import MoveReport, move
from .stores import ROLES, MovePart, place

__all__ = [
    "ROLES",
    "BackupHeader",
    "BackupReport",
    "MovePart",
    "MoveReport",
    "Watch",
    "backup",
    "move",
    "place",
    "restore",
]
