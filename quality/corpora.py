"""Where the sets with known answers lie, and what is said when they are not there."""

from __future__ import annotations

from pathlib import Path

CORPORA = Path(__file__).resolve().parents[2] / "shared/corpora"


def absent(name: str) -> list[str]:
    """The lines that say that a set is missing; none when it is there."""
    folder = CORPORA / name
    return [] if folder.is_dir() else [f"Not measured: the set {name} is not on this machine ({folder})."]
