"""Programs that look at the files of deploy/: in .venv-tools, where `make tools` puts them, or on the path."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def program(name: str, how: str = "make tools") -> str:
    """Skips where it is missing; in CI that is a failure."""
    beside = ROOT / ".venv-tools" / "bin" / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        message = f"{name} is not installed: {how}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


def said(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a program says that must be content."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
