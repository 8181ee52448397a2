"""Projects that somebody else could have written are not read and run nothing, unless the user says so."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from gossamer.model.page import Headers, Snapshot
from gossamer.project.open import Project
from gossamer.settings.trust import distrust

from .commandline import ProjectFolder, project

__all__ = ["project"]

MALLORY = 54_321
PAGE = "https://shop.example/"
SPIDER = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
from gossamer import Spider
class Trap(Spider):
    name = "trap"
    start_urls = []
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def give_away(*paths: Path) -> None:
    for path in paths:
        os.chown(path, MALLORY, MALLORY, follow_symlinks=False)


def open_to_all(*paths: Path) -> None:
    for path in paths:
        path.chmod(0o777 if path.is_dir() else 0o666)


@pytest.fixture(params=[pytest.param(give_away, marks=as_root), open_to_all])
def plant(request):
    """Make files the work of another user: by their owner, or by a mode that lets everybody write."""
    return request.param


def test_settings_of_somebody_else_are_refused(project: ProjectFolder, plant):
    plant(project.folder / "gossamer.toml")
    said = project.run("settings")
    assert said.code == 1
    assert "gossamer.toml" in said.err
    assert f"GOSSAMER_TRUST={project.folder}" in said.err


def test_settings_in_a_folder_of_somebody_else_are_refused(project: ProjectFolder, plant):
    plant(project.folder)
    assert project.run("settings").code == 1


@as_root
def test_settings_behind_a_link_of_somebody_else_are_refused(project: ProjectFolder, tmp_path_factory):
    file = project.folder / "gossamer.toml"
    mine = shutil.move(file, tmp_path_factory.mktemp("mine") / "gossamer.toml")
    file.symlink_to(mine)
    assert project.run("settings").code == 0
    give_away(file)
    assert project.run("settings").code == 1


@pytest.mark.parametrize("ref", ["trap", "spiders/trap.py"])
def test_spiders_of_somebody_else_do_not_run(project: ProjectFolder, plant, ref):
    spider = project.write("spiders/trap.py", SPIDER)
    plant(spider)
    said = project.run("crawl", ref)
    assert (said.code, spider.with_name("ran").exists()) == (1, False)
    assert "GOSSAMER_TRUST=" in said.err


def test_spiders_in_a_folder_of_somebody_else_do_not_run(project: ProjectFolder, plant):
    spider = project.write("spiders/trap.py", SPIDER)
    plant(spider.parent)
    project.run("spiders")
    assert not spider.with_name("ran").exists()


def test_a_recipe_of_somebody_else_is_not_followed(project: ProjectFolder, plant):
    recipe = project.write("trap.toml", 'start = ["http://127.0.0.1:9/"]\n[pages.list]\n')
    plant(recipe)
    said = project.run("crawl", "trap.toml")
    assert said.code == 1
    assert "GOSSAMER_TRUST=" in said.err


@pytest.mark.parametrize("planted", ["state.db", "records.db", "archive", "spool", "."])
def test_a_state_that_somebody_else_planted_is_not_opened(project: ProjectFolder, plant, planted):
    project.write("spiders/mine.py", SPIDER.replace("trap", "mine"))
    assert "GOSSAMER_TRUST=" not in project.run("crawl", "mine").err
    place = project.folder / "gossamer-data" / planted
    if planted == "spool":
        place.mkdir(exist_ok=True)
    plant(place)
    said = project.run("crawl", "mine")
    assert said.code == 1
    assert "GOSSAMER_TRUST=" in said.err


def test_a_trusted_folder_is_used_and_others_are_not(project: ProjectFolder, plant, monkeypatch):
    spider = project.write("spiders/trap.py", SPIDER)
    plant(project.folder, project.folder / "gossamer.toml", spider)
    monkeypatch.setenv("GOSSAMER_TRUST", f"/nowhere:{project.folder.parent / 'another'}")
    assert project.run("spiders").code == 1
    monkeypatch.setenv("GOSSAMER_TRUST", f"/nowhere:{project.folder}")
    assert project.run("spiders").code == 0
    assert spider.with_name("ran").exists()


@as_root
def test_a_group_may_write_only_when_it_is_a_group_of_one(tmp_path):
    tmp_path.chmod(0o770)
    os.chown(tmp_path, 0, 0)
    assert distrust(tmp_path) == ""
    os.chown(tmp_path, 0, MALLORY)
    assert f"the group {MALLORY}" in distrust(tmp_path)
    tmp_path.chmod(0o750)
    assert distrust(tmp_path) == ""


def test_the_code_of_a_spider_imports_nothing_from_a_folder_that_all_may_write(project: ProjectFolder, monkeypatch):
    """The folder in which the user works is on the path of spiders; in /tmp anybody could leave a module there."""
    (project.folder / "gossamer.toml").unlink()
    shared = project.folder / "shared"
    shared.mkdir()
    open_to_all(shared)
    (shared / "left_by_mallory.py").write_text("")
    spider = project.write("own/mine.py", "import left_by_mallory\n" + SPIDER)
    monkeypatch.chdir(shared)
    said = project.run("crawl", str(spider))
    assert "No module named 'left_by_mallory'" in said.err


def test_others_cannot_read_what_was_crawled(project: ProjectFolder):
    async def work(opened: Project) -> None:
        now = opened.clock.now()
        headers = Headers([])
        page = Snapshot(url=PAGE, requested_url=PAGE, status=200, headers=headers, body=b"secret", fetched_at=now)
        await opened.archive.put([page])

    before = os.umask(0o022)
    try:
        project.fill(work)
    finally:
        os.umask(before)
    data = project.folder / "gossamer-data"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    files = [path for path in data.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"state.db", "records.db"}
    assert any(path.suffix == ".zst" for path in files)
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in files} == {"0o600"}
