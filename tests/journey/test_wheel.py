"""The package that `pip install` brings: all its files are in it, and `gossamer demo` needs no extra."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]

# Only the base packages can be imported, as in an environment without extras.
LIGHT = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name in {extras!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None

sys.meta_path.insert(0, NotInstalled())
"""
IMPORTED_AS = {"prometheus-client": "prometheus_client"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.long
def test_the_wheel_has_every_file_of_the_package(wheel: Path):
    ours = {
        file.relative_to(ROOT / "src").as_posix()
        for file in (ROOT / "src" / "gossamer").rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("gossamer-")}
    assert packed == ours


@pytest.mark.long
def test_the_source_package_has_what_the_wheel_is_built_from(tmp_path: Path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    ours = {file.relative_to(ROOT).as_posix() for file in (ROOT / "src").rglob("*") if file.is_file()}
    assert {name for name in ours if not name.endswith(".pyc")} | {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not {name for name in names if name.startswith((".venv", "deploy/secrets/", "dist/"))}


@pytest.mark.long
def test_the_wheel_installs_into_an_empty_environment_and_the_demo_runs(wheel: Path, tmp_path: Path):
    home, project = tmp_path / "environment", tmp_path / "project"
    project.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True, timeout=PATIENCE)
    # What is imported is compiled then; all that comes with it need not be.
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "--quiet", "--no-compile"]
    # The packages that are tested, in their versions; where they come from is the machine's to say.
    locked = [line for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines() if "==" in line]
    pins = tmp_path / "pins.txt"
    pins.write_text("\n".join(line.removesuffix("\\").strip() for line in locked), encoding="utf-8")
    subprocess.run([*pip, "--constraint", pins, wheel], check=True, capture_output=True, timeout=PATIENCE)

    done = subprocess.run(
        [home / "bin" / "gossamer", "demo", "--port", "0", "--rate", "unlimited"],
        cwd=project,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert "Done" in done.stderr, done
    assert (project / "gossamer-data" / "records.db").is_file()


@pytest.mark.long
def test_the_demo_runs_without_any_extra(wheel: Path, tmp_path: Path):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for group in extras.values() for line in group}
    blocked = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names - {"gossamer"}}
    (site / "sitecustomize.py").write_text(LIGHT.format(extras=blocked), encoding="utf-8")
    project = tmp_path / "project"
    project.mkdir()

    done = subprocess.run(
        [sys.executable, "-m", "gossamer", "demo", "--port", "0", "--rate", "unlimited"],
        cwd=project,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert "Done" in done.stderr, done
    assert "records" in done.stderr, done
    assert (project / "gossamer-data" / "records.db").is_file()
