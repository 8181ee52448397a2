"""What `-o` wrote, compared with the model."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .model import Model, ModelJob, Wrong


def check_outputs(folder: Path, names: Sequence[str], job: ModelJob, model: Model) -> None:
    """Every file holds what the job saw and is not gone. Raises Wrong."""
    if job.outcome == "failed":
        return  # the file of the last crawl stays
    expected = {}
    for key in job.seen:
        last = model.records[key].versions[-1]
        if last is not None:
            expected[key] = last
    for name in names:
        rows = read_rows(folder / name)
        found = {row["sku"]: (row["title"], int(row["price"]), int(row["rating"])) for row in rows if row.get("sku")}
        if found != expected:
            raise Wrong(f"{name} has {found}, where {expected} was seen")


def read_rows(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    if file.suffix == ".csv":
        with file.open(newline="", encoding="utf-8") as opened:
            return list(csv.DictReader(opened))
    if file.suffix == ".parquet":
        from gossamer.store.export.parquet import rows_of

        return list(rows_of(file))
    text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
