"""Processes that make the same new file at the same moment all get it."""

from __future__ import annotations

import asyncio
import multiprocessing
from datetime import timedelta
from pathlib import Path
from typing import Any

from gossamer.backends.sqlite.connection import Database
from tests.patience import PATIENCE

PROCESSES, FILES = 4, 40


def open_together(folder: str, barrier: Any, failures: Any) -> None:
    async def open_once(path: Path) -> None:
        async with Database(
            path, schema="records", application_id=1, durable=True, linger=timedelta(0), role="records"
        ) as database:
            assert await database.read(lambda c: c.execute("PRAGMA journal_mode").fetchone()) == ("wal",)

    for number in range(FILES):
        barrier.wait(PATIENCE)
        try:
            asyncio.run(open_once(Path(folder) / f"{number}.db"))
        except Exception as error:
            failures.put(f"{type(error).__name__}: {error}")


def test_processes_that_make_a_new_file_together_all_open_it(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, failures = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(target=open_together, args=(str(tmp_path), barrier, failures)) for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)

    assert [process.exitcode for process in processes] == [0] * PROCESSES
    assert failures.empty(), failures.get()
