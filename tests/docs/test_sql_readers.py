"""What docs/sql.md says of pandas, Polars and DuckDB is run where they are installed."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path

import pytest

from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import VirtualClock
from gossamer.model.item import Item, Money, content_hash, item_data, schema_of
from gossamer.model.record import Attempt, PageResult, Record

from .manual import PAGES, blocks_of

PAGE = next(page for page in PAGES if page.name == "sql.md")


class Product(Item, key="title"):
    title: str
    price: Money


async def _store(path: Path) -> None:
    async with open_sqlite_records(path, VirtualClock(1_900_000_000.0)) as store:
        for at, amount in ((1_800_000_000.0, "9.50"), (1_800_000_060.0, "12.00")):
            item = Product(title="Lamp", price=Money(amount=amount, currency="EUR"))  # type: ignore[arg-type]
            schema, data = schema_of(item), item_data(item)
            assert schema is not None
            record = Record(type="Product", site="s", key="Lamp", url="http://s/", job="j", spider="p", data=data,
                            content_hash=content_hash(data), scraped_at=at, schema=schema.id)  # fmt: skip
            attempt = Attempt(at=at, job="j", url="http://s/", fingerprint=b"1" * 16, site="s", worker="w", attempt=0,
                              outcome="done", status=200)  # fmt: skip
            await store.save([PageResult(attempt=attempt, records=(record,), schemas=(schema,))])


@pytest.mark.parametrize(("library", "prints"), [("pandas", "False"), ("polars", "9.5"), ("duckdb", "('EUR', 12.0)")])
def test_the_snippet_of_a_library_reads_the_views(
    library: str, prints: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [snippet] = [
        block.code for block in blocks_of(PAGE) if block.language == "python" and f"import {library}" in block.code
    ]
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    (tmp_path / "gossamer-data").mkdir()
    asyncio.run(_store(tmp_path / "gossamer-data" / "records.db"))
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "sql.md", "exec"), {})
    assert prints in capsys.readouterr().out
