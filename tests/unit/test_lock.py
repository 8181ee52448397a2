"""requirements.lock holds every package that pyproject.toml asks for, with hashes, and names no place to get it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_the_lock_has_every_package_that_is_asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for group in project["optional-dependencies"].values() for one in group)]
    names = {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in wanted} - {"gossamer"}
    locked = {line.partition("==")[0].partition("[")[0] for line in LOCK.splitlines() if re.match(r"\w[^ ]*==", line)}
    assert names - locked == set()


def test_every_package_of_the_lock_is_known_by_its_hashes():
    packages = re.split(r"\n(?=\w)", LOCK)
    assert len(packages) > 50
    assert [one.splitlines()[0] for one in packages if one.count("--hash=sha256:") < 1] == []
    assert "://" not in LOCK
