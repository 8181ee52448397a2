"""docs/healing.md, followed on the demo shop: a schedule, a redesign, one incident, new rules, the archive parsed
again, a clean run, and the way back; and in mode "auto" with nobody touching anything."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gossamer.demo.catalogue import Catalogue
from gossamer.demo.shop import USUAL_PORT
from gossamer.model.events import NullSink
from gossamer.model.healing import LayoutState
from gossamer.project.open import Project, open_project
from gossamer.project.reparse.archive_job import ReparseChoice
from gossamer.project.reparse.run import reparse
from gossamer.project.spiders.apply import undo
from gossamer.project.spiders.heal import chosen_fields, find_healing
from gossamer.project.spiders.healed_values import healed_values
from gossamer.project.spiders.layout_change import layout_change_of
from gossamer.project.spiders.rules import adopt
from gossamer.settings import load
from gossamer.store.contract import RecordQuery
from tests.docs.manual import ROOT, blocks_of
from tests.patience import PATIENCE, poll_until
from tests.services.postgres import schema_of
from tests.unit.test_cli_heal import served
from tests.unit.test_heal_pages import DETAIL, detail, keep, recipe, record
from tests.unit.test_heal_pages import SITE as SHOP

T = TypeVar("T")
PAGE = ROOT / "docs" / "healing.md"


class Reader:
    """A reader of the page, in an empty folder, with the demo shop at some port. `first` are lines that come first in
    gossamer.toml."""

    def __init__(self, folder: Path, port: int, first: str = "") -> None:
        self.folder = folder
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GOSSAMER_")}
        self._environ = environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"}
        self._blocks = {block.title or block.words: block.code for block in blocks_of(PAGE)}
        for title in ("gossamer.toml", "spiders/shop.toml"):
            file = folder / title
            file.parent.mkdir(exist_ok=True)
            file.write_text(self._blocks[title].replace(str(USUAL_PORT), str(port)))
        toml = folder / "gossamer.toml"
        toml.write_text(first + toml.read_text())

    def append(self, words: str) -> None:
        with (self.folder / "gossamer.toml").open("a") as stream:
            stream.write("\n" + self._blocks[words])

    def type(self, words: str) -> list[str]:
        return [self.run(*line.split()[1:]) for line in self._blocks[words].splitlines()]

    def run(self, *words: str) -> str:
        done = subprocess.run(
            ["gossamer", *words], cwd=self.folder, env=self._environ, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done
        return done.stdout

    @contextmanager
    def up(self) -> Iterator[None]:
        with (self.folder / "up.log").open("w") as log:
            process = subprocess.Popen(
                ["gossamer", "up", "--no-server"], cwd=self.folder, env=self._environ, stdout=log, stderr=log
            )
            try:
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE)

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def prices(self) -> dict[str, Decimal]:
        lines = self.run("export", "--no-meta").splitlines()
        return {one["sku"]: Decimal(one["price"]["amount"]) for one in map(json.loads, lines) if one["price"]}

    def look(self, read: Callable[[Project], Awaitable[T]]) -> T:
        async def within() -> T:
            async with open_project(load(start=self.folder), to_look=True) as project:
                return await read(project)

        return asyncio.run(within())

    def outcome(self, name: str) -> str:
        """The outcome of a job; "" while it runs, and before it begins."""

        async def read(project: Project) -> str:
            job = await project.state.jobs.job(name)
            return job.outcome.outcome.value if job is not None and job.outcome is not None else ""

        return self.look(read)

    def state(self) -> LayoutState | None:
        change = self.look(lambda project: layout_change_of(project, "shop"))
        return change.state if change is not None else None


def sold(revision: int) -> dict[str, Decimal]:
    return {one.sku: one.price for one in Catalogue(revision).wares if one.category == "kitchen" and one.price}


def waits(condition: Any) -> None:
    poll_until(condition, every=0.5)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_redesign_is_one_incident_is_healed_by_a_person_and_undone(tmp_path, store, request):
    first = ""
    if store == "postgres":
        first = f'records = "{request.getfixturevalue("postgres").address()}?schema={schema_of(tmp_path)}"\n'
    with served() as port:
        me = Reader(tmp_path, port, first)
        with me.up():
            waits(lambda: me.outcome("shop-1") == "done")
    assert me.prices() == sold(1)
    with me.up(), served(port, redesigned=True, revision=3):
        me.type("next-run")
        waits(lambda: me.state() is LayoutState.FOUND)
        waits(lambda: [one for one in me.json("incident", "list") if "New rules for 5 of 5" in one["message"]])
        (incident,) = me.json("incident", "list")
        assert (incident["kind"], incident["subject"]) == ("spider", "shop")
        assert me.prices() == sold(1)
        assert "gossamer heal shop --apply" in me.run("incident", "show", incident["id"])

        healed, _ = me.type("apply")
        assert "Version 1 of the healed rules of shop is in use" in healed
        assert me.json("dead", "list")["total"] == 0
        assert me.prices() == sold(3)
        waits(lambda: me.outcome("shop-3"))
        assert me.outcome("shop-3") == "done"
        waits(lambda: me.state() is LayoutState.OVER)

        values, undone = me.type("undo")
        assert "price = " in values
        assert "The file alone holds again" in undone
        assert {sku: price for sku, price in me.prices().items() if sku in sold(1)} == sold(1)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_in_mode_auto_nobody_touches_anything(tmp_path):
    with served() as port:
        me = Reader(tmp_path, port)
        me.append("auto")
        with me.up():
            waits(lambda: me.outcome("shop-1") == "done")
    with me.up(), served(port, redesigned=True, revision=3):
        me.type("next-run")
        waits(lambda: me.prices() == sold(3))
        waits(lambda: me.json("dead", "list")["total"] == 0)
        waits(lambda: me.outcome("shop-2"))
        me.type("next-run")
        waits(lambda: me.outcome("shop-3"))
        assert me.outcome("shop-3") == "done"
        waits(lambda: me.state() is LayoutState.OVER)


@pytest.mark.long
async def test_a_fleet_heals_in_its_stores(tmp_path, monkeypatch, valkey, postgres, s3):
    monkeypatch.chdir(tmp_path)
    name = schema_of(tmp_path)
    (tmp_path / "spiders").mkdir()
    (tmp_path / "spiders" / "shop.toml").write_text(DETAIL)
    (tmp_path / "gossamer.toml").write_text(
        f'project = "{name}"\nstate = "{valkey.address()}"\narchive = "{s3.address(name)}"\n'
        f'records = "{postgres.address()}?schema={name}"\n[fleet]\nkey = "a key of at least sixteen letters"\n'
    )
    settings, spider = load(start=tmp_path), recipe(DETAIL)
    async with open_project(settings) as project:
        now = project.clock.now()
        for n in range(20):
            await keep(
                project, f"{SHOP}/{n}", "tool", detail(record(n, 20 + n), new=False), now - 900, [record(n, 20 + n)]
            )
            await keep(project, f"{SHOP}/{n}", "tool", detail(record(n, 20 + n + n % 4 // 3), new=True), now - 9, [])
        found = await find_healing(project, spider)
        version = await adopt(project, spider, chosen_fields(found), "local")
        assert sorted(one.field for one in version.fields) == ["price", "sku", "title"]
    report = await reparse(settings, ReparseChoice(spider="shop"), NullSink())
    assert (report.failed, report.mended) == (0, 20), report
    async with open_project(settings) as project:
        values = [one async for one in healed_values(project, "shop", field="price")]
        assert sum(one.value["amount"] != one.former["amount"] for one in values) == 5
        undone = await undo(project, spider)
        assert (undone.records, undone.gone, undone.rules) == (len(values), 0, 0)
        stored = [one async for one in project.records.records(RecordQuery(spider="shop"))]
        assert {one.data["price"]["amount"] for one in stored} == {f"{20 + n}.50" for n in range(20)}
