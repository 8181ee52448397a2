"""kill -9 of the process that writes outputs, at any instant, and of the connections of its target: in the end every
target equals the records, row by row."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.model.record import Record
from gossamer.project.open import Project, open_project
from gossamer.settings import load
from gossamer.store.contract import RecordQuery, Retirement
from tests.conformance.outputs import SCHEMA, read_file, shown
from tests.conformance.stores import page_of, result, tried
from tests.patience import PATIENCE
from tests.services.postgres import schema_of, shared_postgres
from tests.services.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed

pytestmark = pytest.mark.long

RECORDS = int(os.environ.get("OUTPUT_RECORDS", "3000"))
RUNS = 3
CHANGED = 0.3
GONE = 0.02
KILLS_PER_RUN = 4
PAGE_SIZE = 500
NAMES = "_key, title, price_amount, stock, _gone_since"


def product(number: int, price: int, at: float, job: str) -> Record:
    fields = {"title": f"lamp {number}", "price": {"amount": f"{price}.50", "currency": "EUR"}, "stock": price}
    data = msgspec.json.encode(fields)
    return Record(
        type="Product", site="shop.example", key=f"k{number}", url=f"https://shop.example/{number // PAGE_SIZE}",
        job=job, spider="shop", data=data.decode(), content_hash=blake2b(data, digest_size=16).digest(), scraped_at=at,
        schema=SCHEMA.id,
    )  # fmt: skip


BETWEEN_PAGES = 0.05  # seconds, so that outputs write while a run goes on


async def scrape(project: Project, run: int, prices: dict[int, int]) -> None:
    """A run of the spider: pages with these products, and no others."""
    job, at = f"shop-{run}", project.clock.now()
    for first in range(0, RECORDS, PAGE_SIZE):
        url = f"https://shop.example/{first // PAGE_SIZE}"
        there = [number for number in range(first, min(first + PAGE_SIZE, RECORDS)) if number in prices]
        some = [product(number, prices[number], at, job) for number in there]
        page = page_of(url, at=at, job=job, spider="shop")
        await project.records.save([result(*some, page=page, attempt=tried(url, at=at, job=job), schemas=(SCHEMA,))])
        await asyncio.sleep(BETWEEN_PAGES)
    await project.records.retire(Retirement(job=job, spider="shop", at=at + 1))


@pytest.mark.timeout(1800)  # several runs with kills, where cores are rare
async def test_every_target_equals_the_records_after_kills(
    tmp_path: Path, postgres: Any, s3: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncpg

    chance = random.Random(7)
    schema = schema_of(tmp_path)
    server = await asyncpg.connect(shared_postgres().address())
    await server.execute(f"CREATE SCHEMA {schema}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    urls = {
        "lite": "sqlite:///target.db?table=products",
        "duck": "duckdb:///target.duckdb?table=products",
        "pg": f"{shared_postgres().address()}/{schema}.products",
        "s3": s3.address(f"{schema}/lake/"),
    }
    tables = "".join(
        f'[outputs.{name}]\nurl = "{url}"\nevery = "1s"\n' + ('history = "past"\n' if name != "s3" else "")
        for name, url in urls.items()
    ).replace('history = "past"\n[outputs.s3]', f'history = "{schema}.past"\n[outputs.s3]')
    (tmp_path / "gossamer.toml").write_text(tables)
    command = [sys.executable, "-m", "gossamer", "output", "run", "--quiet"]
    settings = load(start=tmp_path)
    prices: dict[int, int] = dict.fromkeys(range(RECORDS), 1)
    kills = 0
    async with open_project(settings) as project:
        for run in range(1, RUNS + 1):
            if run > 1:
                for number in range(RECORDS):
                    draw = chance.random()
                    if draw < GONE:
                        prices.pop(number, None)
                    elif draw < CHANGED:
                        prices[number] = run
            scraping = asyncio.create_task(scrape(project, run, prices))
            for _ in range(KILLS_PER_RUN):
                process = subprocess.Popen(command, cwd=tmp_path)
                await asyncio.sleep(chance.uniform(1.0, 5.0))
                await server.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gossamer output'"
                )
                await asyncio.sleep(chance.uniform(0.0, 1.0))
                process.kill()
                process.wait()
                kills += 1
            await scraping
        last = await asyncio.to_thread(
            subprocess.run, [*command, "--until-written"], cwd=tmp_path, timeout=PATIENCE, check=False
        )
        assert last.returncode == 0
        records = {one.key: one async for one in project.records.records(RecordQuery())}
    wanted = {key: shown(one) for key, one in records.items()}
    versions = sorted((key, version) for key, one in records.items() for version in range(1, one.version + 1))
    assert len(wanted) == RECORDS
    assert kills == RUNS * KILLS_PER_RUN
    assert max(one.version for one in records.values()) >= RUNS

    import sqlite3

    import duckdb

    with sqlite3.connect(tmp_path / "target.db") as file:
        assert told(file.execute(f"SELECT {NAMES} FROM products")) == wanted
        assert sorted(file.execute("SELECT _key, version FROM past")) == versions
    with duckdb.connect(str(tmp_path / "target.duckdb")) as duck:
        assert told(duck.execute(f"SELECT {NAMES} FROM products").fetchall()) == wanted
        assert sorted(duck.execute("SELECT _key, version FROM past").fetchall()) == versions
    assert told(await server.fetch(f"SELECT {NAMES} FROM {schema}.products")) == wanted
    past = await server.fetch(f"SELECT _key, version FROM {schema}.past")
    assert sorted((row[0], row[1]) for row in past) == versions
    await server.close()
    newest: dict[str, dict[str, Any]] = {}
    async for name, content in objects(urls["s3"]):
        for row in read_file(name, content):
            if row["_key"] not in newest or newest[row["_key"]]["_version"] <= row["_version"]:
                newest[row["_key"]] = row
    assert told([tuple(row.get(one) for one in NAMES.split(", ")) for row in newest.values()]) == wanted


async def objects(url: str) -> AsyncIterator[tuple[str, bytes]]:
    from gossamer.backends.outputs.files import BucketFiles

    files = BucketFiles(url)
    for name in await files.names("type=Product/"):
        content = await files.get(name)
        assert content is not None
        yield name, content


def told(rows: Any) -> dict[str, tuple[Any, ...]]:
    return {
        key: (title, None if amount is None else float(amount), stock, gone is not None)
        for key, title, amount, stock, gone in rows
    }
