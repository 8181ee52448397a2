"""Another user of the machine, who can write some files in or near a project: can they run code as the project's owner?

tests/unit/test_trust.py has the files that Gossamer itself opens; here are those that the project's code imports.
"""

from __future__ import annotations

import compileall
import os
import subprocess
from collections.abc import Callable

import pytest

from tests.patience import PATIENCE
from tests.unit.commandline import COMMAND, ProjectFolder, project
from tests.unit.test_trust import as_root, give_away, plant

__all__ = ["plant", "project"]

Plant = Callable[..., None]
TRAP = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
SPIDER = "{imports}\nfrom gossamer import Spider\nclass Mine(Spider):\n    name = 'mine'\n    start_urls = []\n"


def load(project: ProjectFolder, *more: str, **environ: str) -> str:
    """Load the spiders in a process of their own, which has imported nothing yet. Returns all that it prints."""
    words = [COMMAND, *(more or ("spiders",))]
    env = {**os.environ, **environ}
    done = subprocess.run(words, cwd=project.folder, env=env, capture_output=True, text=True, timeout=PATIENCE)
    return done.stdout + done.stderr


def ran(project: ProjectFolder) -> bool:
    return any(project.folder.rglob("ran"))


# How the spider imports it -> the file that runs then
SIBLINGS = {
    "import left": "spiders/left.py",
    "from left import *": "spiders/left.py",
    "import left # beside gossamer.toml": "left.py",
    "import lib.left": "spiders/lib/left.py",
    "import lib": "spiders/lib/__init__.py",
    "from lib.deep import left": "lib/deep/left.py",
    "import sys; sys.path.insert(0, __file__.replace('mine.py', 'more')); import left": "spiders/more/left.py",
    "import importlib; importlib.import_module('left')": "spiders/left.py",
}  # fmt: skip


@pytest.mark.parametrize("imports", SIBLINGS)
def test_a_module_of_somebody_else_is_not_imported(project: ProjectFolder, plant: Plant, imports: str) -> None:
    project.write("spiders/mine.py", SPIDER.format(imports=imports))
    module = project.write(SIBLINGS[imports], TRAP)
    load(project)
    assert ran(project)  # as long as it is our own
    module.with_name("ran").unlink()

    plant(module)
    assert "GOSSAMER_TRUST=" in load(project)
    assert not ran(project)


def test_a_package_in_a_folder_of_somebody_else_is_not_imported(project: ProjectFolder, plant: Plant) -> None:
    project.write("spiders/mine.py", SPIDER.format(imports="import lib.left"))
    module = project.write("spiders/lib/left.py", TRAP)
    plant(module.parent)
    assert "GOSSAMER_TRUST=" in load(project)
    assert not ran(project)


def test_a_compiled_copy_of_somebody_else_is_not_run(project: ProjectFolder, plant: Plant) -> None:
    project.write("spiders/mine.py", SPIDER.format(imports="import _left"))
    module = project.write("spiders/_left.py", TRAP)
    compileall.compile_file(str(module), quiet=1)
    (cached,) = (module.parent / "__pycache__").iterdir()
    plant(cached)
    assert "GOSSAMER_TRUST=" in load(project)
    assert not ran(project)


@as_root
@pytest.mark.parametrize("name", ["left.py", "_left.py"])  # a spider, and a module
def test_a_link_to_a_folder_of_somebody_else_is_not_followed(
    project: ProjectFolder, tmp_path_factory, name: str
) -> None:
    project.write("spiders/mine.py", SPIDER.format(imports="import _left"))
    theirs = tmp_path_factory.mktemp("theirs")
    (theirs / "left.py").write_text(TRAP)
    link = project.folder / "spiders" / name
    link.symlink_to(theirs / "left.py")  # the file is root's, and the folder is not: it can be replaced at any time
    give_away(theirs)
    assert "GOSSAMER_TRUST=" in load(project)
    assert not (theirs / "ran").exists()


def test_an_extension_of_somebody_else_is_not_loaded(project: ProjectFolder, plant: Plant) -> None:
    project.write("spiders/mine.py", SPIDER.format(imports=""))
    extension = project.write("extra.py", TRAP + "from gossamer import Extension\nclass Extra(Extension):\n    pass\n")
    settings = project.folder / "gossamer.toml"
    settings.write_text('extensions = ["extra:Extra"]\n' + settings.read_text())
    plant(extension)
    assert "GOSSAMER_TRUST=" in load(project, "crawl", "mine")
    assert not ran(project)


def test_what_a_scrapy_project_imports_is_checked(project: ProjectFolder, plant: Plant) -> None:
    pytest.importorskip("scrapy")
    project.write("scrapy.cfg", "[settings]\ndefault = theirs.settings\n")
    project.write("theirs/__init__.py", "")
    project.write("theirs/settings.py", 'SPIDER_MODULES = ["theirs.spiders"]\n')
    project.write("theirs/spiders/__init__.py", "")
    project.write(
        "theirs/spiders/quotes.py",
        "import scrapy\nfrom theirs import left\nclass Quotes(scrapy.Spider):\n    name = 'quotes'\n",
    )
    plant(project.write("theirs/left.py", TRAP))
    assert "GOSSAMER_TRUST=" in load(project)
    assert not ran(project)


def test_a_trusted_folder_is_imported_from(project: ProjectFolder, plant: Plant) -> None:
    project.write("spiders/mine.py", SPIDER.format(imports="import left"))
    plant(project.write("spiders/left.py", TRAP))
    load(project, GOSSAMER_TRUST=str(project.folder))
    assert ran(project)


def test_a_virtual_environment_in_the_project_is_not_judged(project: ProjectFolder, plant: Plant) -> None:
    """Installed packages are trusted, wherever they are."""
    project.write("spiders/mine.py", SPIDER.format(imports="import left"))
    module = project.write(".venv/lib/left.py", TRAP)
    plant(module)
    load(project, PYTHONPATH=str(module.parent))
    assert ran(project)
