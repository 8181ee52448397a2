"""What a check of `gossamer doctor` found."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class DoctorFinding(msgspec.Struct, frozen=True):
    """The result of one check. `advice` is the next step; empty if all is well."""

    level: Level
    what: str
    detail: str
    advice: str = ""


def ok(what: str, detail: str) -> DoctorFinding:
    return DoctorFinding(Level.OK, what, detail)
