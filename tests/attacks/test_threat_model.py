"""The threat model and this folder name the same files, and every file says what was tried."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.sites.running import ROOT

FOLDER = Path(__file__).parent
SECURITY = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
MODEL = SECURITY.partition("## Threat model")[2].partition("\n## ")[0]
NAMED = set(re.findall(r"`(test_\w+\.py)`", MODEL))


def test_every_file_of_this_folder_stands_in_the_threat_model() -> None:
    assert {path.name for path in FOLDER.glob("test_*.py")} - {Path(__file__).name} <= NAMED


def test_every_file_says_what_was_tried() -> None:
    for path in FOLDER.glob("test_*.py"):
        if path.name in NAMED:
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path.name
