"""`python -m bench.outputs`: records with changes through four targets, with kill -9 of workers, outputs and targets.

Three runs store records, of which 30 % change from run to run, while outputs follow them into PostgreSQL, DuckDB,
Parquet on S3 and a stand-in for MongoDB. At random, the process that stores is killed, the one that writes the outputs,
and the PostgreSQL server that is their target. In the last run that server is away for ten minutes. Then a crawl's CPU
per page, with two outputs beside none.

Promised: every target equals the records, row by row; the output process takes no more memory while a target is away;
two outputs in a process of their own cost the crawl at most 5 % more CPU per page.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.conformance.outputs import SCHEMA, read_file
from tests.conformance.stores import page_of, result, tried
from tests.faults.test_killed_outputs import product
from tests.journey.test_forget import SPIDER, Site
from tests.services.mongo_stand_in import mongo_stand_in
from tests.services.postgres import PostgresServer, running_postgres
from tests.services.seaweed import ACCESS_KEY, SECRET_KEY, running_seaweed
from tests.services.threaded import in_thread

from gossamer.backends.outputs.files import BucketFiles
from gossamer.model.record import StoredRecord
from gossamer.project.open import open_project
from gossamer.settings import load
from gossamer.store.contract import RecordQuery

from .table import table

RUNS, CHANGED, OF_A_PAGE = 3, 0.3, 500
MOST_MORE_CPU = 0.05
MOST_GROWTH_MB = 40
Rows = dict[str, tuple[Any, ...]]


def price_of(number: int, run: int) -> int:
    """30 % of the records change in each run; the same in every process."""
    changes = [one for one in range(2, run + 1) if random.Random(f"{number}/{one}").random() < CHANGED]
    return changes[-1] if changes else 1


async def store(folder: Path, run: int, records: int) -> None:
    """What a worker stores in a run; it may be killed and begin anew."""
    async with open_project(load(start=folder)) as project:
        job, at = f"shop-{run}", 1_800_000_000.0 + 3600 * run
        for first in range(0, records, OF_A_PAGE):
            url = f"https://shop.example/{first // OF_A_PAGE}"
            some = [product(n, price_of(n, run), at, job) for n in range(first, min(first + OF_A_PAGE, records))]
            page, attempt = page_of(url, at=at, job=job, spider="shop"), tried(url, at=at, job=job)
            await project.records.save([result(*some, page=page, attempt=attempt, schemas=(SCHEMA,))])


def rss_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


class Following:
    """The process that writes the outputs, and the most memory that it had, by what happened meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.command = [sys.executable, "-m", "gossamer", "output", "run", "--quiet"]
        self._folder = folder
        self.most: dict[str, float] = {}
        self.meanwhile = "target there"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self.command, cwd=self._folder, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    async def watch(self) -> None:
        while True:
            with suppress(OSError, IndexError):  # it was killed just now
                self.most[self.meanwhile] = max(self.most.get(self.meanwhile, 0.0), rss_mb(self._process.pid))
            await asyncio.sleep(0.5)


async def kills(
    folder: Path, records: int, target: PostgresServer, seed: int, away: float
) -> tuple[int, dict[str, float]]:
    """All runs with everything that is killed on the way, the last one with the target away: how often something was
    killed, and the most memory of the output process in MB."""
    chance, count = random.Random(seed), 0
    following = Following(folder)
    watching = asyncio.create_task(following.watch())
    for run in range(1, RUNS + 1):
        words = f"-m bench.outputs --store {run} --records {records} --in".split()
        write = [sys.executable, *words, str(folder)]
        until = 0.0
        if run == RUNS:
            target.kill()
            until, following.meanwhile, count = time.monotonic() + away, "target away", count + 1
        storing = subprocess.Popen(write)
        while storing.poll() is None or time.monotonic() < until:
            await asyncio.sleep(chance.uniform(0.5, 2.5) * max(1.0, records / 20_000))
            match chance.choice(["worker", "outputs", "target", "none"]):
                case "worker" if storing.poll() is None:
                    storing.kill()
                    storing.wait()
                    storing, count = subprocess.Popen(write), count + 1
                    await asyncio.sleep(4 + records / 2_500)  # it makes some way
                case "outputs" if not until:
                    following.kill()
                    following.start()
                    count += 1
                case "target" if not until:
                    target.kill()
                    count += 1
                    await asyncio.sleep(5)
                    target.start()
        if until:
            target.start()
    watching.cancel()
    following.kill()
    done = await asyncio.to_thread(
        subprocess.run, [*following.command, "--until-written"], cwd=folder, timeout=1800, check=False
    )
    assert done.returncode == 0
    return count, following.most


def fields_of(record: StoredRecord) -> tuple[Any, ...]:
    data = record.data
    return data["title"], float(data["price"]["amount"]), data["stock"], record.version


def plain(rows: Any) -> Rows:
    return {row[0]: (row[1], float(row[2]), row[3], row[4]) for row in rows}


async def differing(folder: Path, target: PostgresServer, bucket: str, documents: dict[Any, Any]) -> dict[str, int]:
    """Of each target, how many rows are not as the records are."""
    import asyncpg
    import duckdb

    columns = "_key, title, price_amount, stock, _version"
    async with open_project(load(start=folder)) as project:
        wanted = {one.key: fields_of(one) async for one in project.records.records(RecordQuery())}
    connection = await asyncpg.connect(target.address())
    found = {"PostgreSQL": plain(await connection.fetch(f"SELECT {columns} FROM products"))}
    await connection.close()
    with duckdb.connect(str(folder / "target.duckdb"), read_only=True) as duck:
        found["DuckDB"] = plain(duck.execute(f"SELECT {columns} FROM products").fetchall())
    newest: dict[str, dict[str, Any]] = {}
    files = BucketFiles(bucket)
    for name in await files.names("type=Product/"):
        for row in read_file(name, await files.get(name) or b""):
            if newest.get(row["_key"], row)["_version"] <= row["_version"]:
                newest[row["_key"]] = row
    names = columns.split(", ")
    found["Parquet on S3"] = plain(tuple(row[name] for name in names) for row in newest.values())
    found["MongoDB stand-in"] = {
        one["_key"]: (one["title"], float(one["price_amount"]), one["stock"], one["_version"])
        for one in documents.values()
    }
    return {
        name: sum(rows.get(key) != row for key, row in wanted.items()) + len(rows.keys() - wanted.keys())
        for name, rows in found.items()
    }


def cpu_per_page(pages: int, *, outputs: bool, beside: bool) -> float:
    """CPU milliseconds per page of `gossamer crawl`; `beside`: another process writes the outputs."""
    tables = "".join(f'[outputs.o{n}]\nurl = "sqlite:///out{n}.db?table=people"\n' for n in range(2)) if outputs else ""
    with tempfile.TemporaryDirectory(prefix="gossamer-outputs-") as place, in_thread(site := Site(pages)):
        folder = Path(place)
        (folder / "gossamer.toml").write_text(
            f'[fetch]\nallow_private = true\n[politeness]\nrate = "unlimited"\nconcurrency = 16\n{tables}'
        )
        (folder / "people.py").write_text(SPIDER.replace("{home}", site.home))
        command = [sys.executable, "-m", "gossamer"]
        writing = None
        if beside:
            writing = subprocess.Popen([*command, "output", "run", "--quiet"], cwd=folder)
            time.sleep(3)  # it has taken the outputs over
        crawling = subprocess.Popen([*command, "crawl", "people.py", "--quiet"], cwd=folder)
        _, status, used = os.wait4(crawling.pid, 0)
        if writing is not None:
            writing.kill()
            writing.wait()
        assert os.waitstatus_to_exitcode(status) == 0
        return 1000 * (used.ru_utime + used.ru_stime) / pages


@contextmanager
def keys_of_s3() -> Iterator[None]:
    os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = ACCESS_KEY, SECRET_KEY
    yield


async def main(records: int, pages: int, seed: int, away: float) -> int:
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="gossamer-outputs-") as place,
        running_postgres() as target,
        running_seaweed() as s3,
        keys_of_s3(),
    ):
        async with mongo_stand_in() as mongo:
            folder, bucket = Path(place), s3.address("lake/")
            urls = {
                "pg": f"{target.address()}/products",
                "duck": "duckdb:///target.duckdb?table=products",
                "s3": bucket,
                "mongo": f"mongodb://127.0.0.1:{mongo.port}/shop/products",
            }
            tables = "".join(f'[outputs.{name}]\nurl = "{url}"\nevery = "2s"\n' for name, url in urls.items())
            (folder / "gossamer.toml").write_text(tables)
            count, most = await kills(folder, records, target, seed, away)
            wrong = await differing(folder, target, bucket, mongo.collections["shop.products"])
    seconds = time.monotonic() - began
    rows = [[name, f"{records:,}", str(bad)] for name, bad in wrong.items()]
    print(table(["target", "records", "rows that differ"], rows))
    memory = ", ".join(f"{mb:.0f} MB with the {when}" for when, mb in most.items())
    print(f"{count} kills, {seconds:.0f} s, {away:.0f} of them with the target away; the output process had {memory}")
    growth = most["target away"] - most["target there"]
    ways = {"none": (False, False), "two, in the crawl": (True, False), "two, in a process of their own": (True, True)}
    costs: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(3):
        for way, (outputs, beside) in ways.items():
            costs[way].append(cpu_per_page(pages, outputs=outputs, beside=beside))
    least = {way: min(found) for way, found in costs.items()}
    more = {way: cost / least["none"] - 1 for way, cost in least.items()}
    print(table(["outputs", "CPU ms per page", "more"], [[w, f"{least[w]:.2f}", f"{more[w]:+.0%}"] for w in ways]))
    kept = (
        not any(wrong.values()) and growth <= MOST_GROWTH_MB and more["two, in a process of their own"] <= MOST_MORE_CPU
    )
    print("Kept." if kept else "NOT KEPT.")
    return 0 if kept else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--pages", type=int, default=2000, help="of the crawls whose CPU is measured")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--away", type=float, default=600, help="seconds for which the target is away in the last run")
    parser.add_argument("--store", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.store:
        asyncio.run(store(given.folder, given.store, given.records))
    else:
        sys.exit(asyncio.run(main(given.records, given.pages, given.seed, given.away)))
