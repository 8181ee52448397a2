"""The projects of examples/: the command that examples/README.md gives for each, against the shop."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gossamer.cli.demo import shop_in_background
from gossamer.demo.catalogue import CATEGORIES, Catalogue, category_of
from gossamer.demo.corners import LOOKBOOK
from gossamer.demo.shop import USUAL_PORT
from tests.browser.conftest import chromium as chromium
from tests.faults.fleet import own_services
from tests.patience import PATIENCE
from tests.services.seaweed import ACCESS_KEY, SECRET_KEY

pytestmark = [pytest.mark.usefixtures("chromium"), pytest.mark.long]

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| \[(\w+)\]\(\1\) \|[^|]*\| `([^`]+)`", re.MULTILINE)
COMMANDS = dict(ROW.findall((ROOT / "examples" / "README.md").read_text(encoding="utf-8")))
WARES = Catalogue().wares


def on_shelf(category: str) -> int:
    found = category_of(category)
    assert found is not None
    return len(Catalogue().of(found))


RECORDS = {
    "history": on_shelf("lighting"),
    "login": sum(ware.price is not None for ware in WARES),
    "api": len(WARES),
    "news": len(CATEGORIES),
    "files": 2 * LOOKBOOK,  # what was found, and the files
    "browser": len(WARES),
    "fleet": on_shelf("lighting"),
    "scrapy": on_shelf("ceramics"),
}


@pytest.fixture
def port() -> Iterator[str]:
    with shop_in_background(0, 1) as urls:
        yield urls[0].rpartition(":")[2].strip("/")


def copied(name: str, tmp_path: Path, port: str) -> Path:
    folder = shutil.copytree(ROOT / "examples" / name, tmp_path / name)
    for file in folder.rglob("*.*"):
        if file.suffix in (".py", ".toml"):
            file.write_text(file.read_text().replace(f".localhost:{USUAL_PORT}", f".localhost:{port}"))
    return folder


def run(folder: Path, command: str, **environ: str) -> None:
    bin = str(Path(sys.executable).parent)
    given = {
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "GOSSAMER_POLITENESS__RATE": "100/s",
    }
    done = subprocess.run(
        ["sh", "-ec", command], cwd=folder, env={**given, **environ}, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr


def records_in(folder: Path, **environ: str) -> list[dict[str, object]]:
    run(folder, "gossamer export -o all.jsonl", **environ)
    return [json.loads(line) for line in (folder / "all.jsonl").read_text().splitlines()]


def test_there_is_a_command_for_every_folder():
    folders = {one.name for one in (ROOT / "examples").iterdir() if one.is_dir()}
    assert set(COMMANDS) == set(RECORDS) == folders


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "fleet"])
def test_the_command_brings_every_record(name, port, tmp_path):
    folder = copied(name, tmp_path, port)
    run(folder, COMMANDS[name])
    assert len(records_in(folder)) == RECORDS[name]
    for option, file in re.findall(r"(-o|--files) (\S+)", COMMANDS[name]):
        made = folder / file
        assert any(made.iterdir()) if option == "--files" else made.stat().st_size, file


def test_the_shop_some_weeks_later_has_a_difference_and_a_history_of_prices(tmp_path):
    with shop_in_background(0, 1) as urls:
        port = urls[0].rpartition(":")[2].strip("/")
        folder = copied("history", tmp_path, port)
        run(folder, "gossamer crawl wares")
    with shop_in_background(int(port), 2):
        run(folder, "gossamer crawl wares && gossamer diff wares-1 wares-2 > changes.txt")
    assert "price" in (folder / "changes.txt").read_text()
    with closing(sqlite3.connect(folder / "prices.db")) as prices:
        (versions,) = prices.execute("SELECT count(*) FROM price_history").fetchone()
    assert versions > RECORDS["history"]


def test_the_same_spider_on_a_fleet(port, tmp_path, s3):
    with own_services(s3) as services:
        folder = copied("fleet", tmp_path, port)
        stores = {
            "GOSSAMER_STATE": services.valkey.address(),
            "GOSSAMER_RECORDS": services.postgres.address(),
            "GOSSAMER_ARCHIVE": services.s3.address("examples"),
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }
        command = shlex.split(COMMANDS["fleet"].partition("`")[0])
        worker = subprocess.Popen(
            [sys.executable, "-m", "gossamer", "worker"], cwd=folder, env={**os.environ, **stores},
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            run(folder, " ".join(command), **stores)
        finally:
            worker.terminate()
            worker.wait(PATIENCE)
        assert len(records_in(folder, **stores)) == RECORDS["fleet"]
