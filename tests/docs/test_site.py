"""The site of the manual (`make site`): every page, no link that leads nowhere, the names of `from gossamer import`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import gossamer
from tests.deploy.tools import ROOT, program

pytestmark = pytest.mark.long


def test_the_site_has_every_page_and_needs_nothing_from_elsewhere():
    # a link or an anchor that leads nowhere fails the build
    made = subprocess.run(
        [sys.executable, "scripts/manual.py", program("zensical")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    site = ROOT / "build" / "site"
    for page in (ROOT / "docs").rglob("*.md"):
        name = "index.md" if page == ROOT / "docs" / "README.md" else page.relative_to(ROOT / "docs")
        assert (site / name).with_suffix(".html").exists(), name

    reference = (site / "python.html").read_text()
    missing = [
        name for name in gossamer.__all__ if not name.startswith("_") and f'id="gossamer.{name}"' not in reference
    ]
    assert missing == []
    assert any("Retry-After" in entry["text"] for entry in json.loads((site / "search.json").read_text())["items"])
    quickstart = (site / "quickstart.html").read_text()
    assert '<script src="http' not in quickstart
    assert "fonts.googleapis" not in quickstart
