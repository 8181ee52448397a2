"""What a crawl that ends says of its outputs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gossamer.clock import VirtualClock
from gossamer.project.open import open_project
from gossamer.project.outputs.run import Outputs
from gossamer.settings import load
from gossamer.store.outputs.book import OutputBook
from tests.conformance.stores import NOW, book, result


async def test_what_is_written_of_a_round_is_not_said_to_be_left(tmp_path: Path) -> None:
    (tmp_path / "gossamer.toml").write_text('[outputs.shop]\nurl = "sqlite:///shop.db"\n')
    async with open_project(load(start=tmp_path, environ={}), clock=VirtualClock(NOW)) as project:
        await project.records.save([result(book(f"b{number}")) for number in range(5)])
        upto = await project.records.cursor()
        await OutputBook(project.state.shelf).order(
            "shop", lambda one: msgspec.structs.replace(one, upto=upto, passed=3, written=3, paused=True)
        )

        (report,) = await Outputs(project, project.settings.outputs).finish()

    assert (report.written, report.lag) == (3, 2)
