"""The tree in docs/tree.md and the picture in docs/architecture.md are those of the code."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE

from .manual import ROOT


def test_the_tree_and_the_picture_match_the_code():
    done = subprocess.run(
        [sys.executable, "scripts/architecture.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert done.returncode == 0, done.stdout + done.stderr
