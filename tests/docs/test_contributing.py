"""CONTRIBUTING's tables lead to what is there: commands that make knows, files, and names that stand in them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gossamer"
_TOKEN = re.compile(r"`([^`]+)`")
_PATH = re.compile(r"[a-z_*/0-9-]+(\.(py|lua|sql|toml)|/)")


def changes() -> list[tuple[str, str]]:
    """The rows: the change, and what is said of its files."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("## Twelve changes and their files")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return [(row[0], row[1]) for row in rows[1:] if not row[0].startswith("---")]


def named_files(path: str, beside: Path | None) -> list[Path]:
    places = [SOURCE, ROOT, *([beside.parent] if beside is not None else [])]
    return [file for place in places for file in sorted(place.glob(path.rstrip("/")))]


def test_make_knows_how_to_make_every_command_that_is_named() -> None:
    commands = re.findall(r"`make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert "site" in commands
    # -n: say what would be done, and do nothing
    made = subprocess.run(["make", "-n", *sorted(set(commands))], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


def test_there_are_twelve_changes() -> None:
    assert len(changes()) == 12


@pytest.mark.parametrize(("change", "files"), changes(), ids=[change for change, _ in changes()])
def test_a_change_leads_to_files_that_have_what_is_said(change: str, files: str) -> None:
    last: list[Path] = []
    for token in _TOKEN.findall(files):
        if _PATH.fullmatch(token):
            last = named_files(token, last[0] if last else None)
            assert last, f"{token} does not exist"
        elif re.fullmatch(r"[A-Za-z_]+", token):  # a name in the file before it; [tables] of settings are no names
            assert any(token in file.read_text(encoding="utf-8") for file in last if file.is_file()), (token, last)
