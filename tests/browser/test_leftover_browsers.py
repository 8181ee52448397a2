"""Whose folder is it? No browser is needed to tell."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gossamer.fetch.browser import chromium
from tests.patience import PATIENCE

from .showing import born_at


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process puts its folders."""
    monkeypatch.setattr(chromium, "_home", lambda: str(tmp_path))
    return tmp_path


def abandon(folder: Path) -> None:
    """As if its worker were gone, and its id given to another process since."""
    pid, _, here = (folder / "worker").read_text().split()
    (folder / "worker").write_text(f"{pid} 1 {here}")


def test_where_temporary_files_have_long_paths_the_folder_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 80)))
    folder = chromium.new_folder()
    try:
        socket = folder / ".org.chromium.Chromium.abcdef" / "SingletonSocket"
        assert len(str(socket)) <= 107
    finally:
        abandon(folder)
        chromium.sweep()
    assert not folder.exists()


def test_only_a_folder_whose_worker_is_surely_gone_is_removed(place: Path) -> None:
    mine, gone, elsewhere, kept = (chromium.new_folder() for _ in range(4))
    abandon(gone)
    (elsewhere / "worker").write_text(f"{os.getpid()} 1 pid:[1]")  # of a container that shares the place
    silent = place / "gossamer-browser-silent"
    silent.mkdir()
    abandon(kept)
    kept = kept.rename(place / "kept")
    link = place / "gossamer-browser-link"
    link.symlink_to(kept)
    chromium.sweep()
    assert not gone.exists()
    assert all(folder.exists() for folder in (mine, elsewhere, silent, kept, link))


def test_only_processes_that_live_in_the_folder_are_ended(place: Path) -> None:
    gone = chromium.new_folder()
    abandon(gone)
    wait = [sys.executable, "-c", "input()"]
    inside = subprocess.Popen(wait, stdin=subprocess.PIPE, env={**os.environ, "TMPDIR": str(gone)})
    named = subprocess.Popen([*wait, f"--user-data-dir={gone}/profile"], stdin=subprocess.PIPE)
    other = subprocess.Popen([*wait, f"--user-data-dir={gone}2/profile"], stdin=subprocess.PIPE)
    try:
        assert all(born_at(one.pid) for one in (inside, named, other))
        chromium.sweep()
        assert (inside.wait(PATIENCE), named.wait(PATIENCE), other.poll()) == (-9, -9, None)
        assert not gone.exists()
    finally:
        for one in (inside, named, other):
            one.kill()
            one.communicate()


def test_a_process_that_took_the_id_of_another_is_spared(place: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        born = chromium.born_at(other.pid)
        assert born is not None
        chromium.kill({other.pid: born - 1})
        assert other.poll() is None
        chromium.kill({other.pid: born})
        assert other.wait(PATIENCE) == -9
    finally:
        other.kill()
        other.communicate()
