"""Files that an earlier version wrote are opened by this one, and a crawl that it left half-way goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .old_project import PRODUCTS, LampShop, gossamer, unpack, write_settings

pytestmark = pytest.mark.long


def printed(folder: Path, *words: str) -> str:
    done = gossamer(folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_project_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    # given a project as the last release left it: 14 of 30 prices of the second crawl are stored
    unpack(tmp_path)
    with LampShop().open() as shop:
        write_settings(tmp_path, shop)
        shop.raise_of_prices = 1
        before = json.loads(printed(tmp_path, "job", "list", "--json"))
        assert [(job["id"], job["state"], job["done"], job["open"]) for job in before] == [
            ("lamps-2", "running", 15, 17), ("lamps-1", "finished", 31, 0),
        ]  # fmt: skip

        # when this version crawls
        printed(tmp_path, "crawl", "lamps", "--quiet")

        # then it asks only for what was left, and the second crawl ends
        lamps = [path for path in shop.hits if path.startswith("/lamp/")]
        assert len(lamps) == len(set(lamps)) == PRODUCTS - 14
        assert "/" not in shop.hits
        newest = json.loads(printed(tmp_path, "job", "list", "--json"))[0]
        assert (newest["id"], newest["state"], newest["done"], newest["dead"]) == ("lamps-2", "finished", 31, 1)

    # and every record has both prices, the older one from the version before
    records = [json.loads(line) for line in printed(tmp_path, "export", "--format", "jsonl").splitlines()]
    assert {(r["sku"], r["price"]) for r in records} == {(f"L-{n}", n * 10 + 1) for n in range(1, PRODUCTS + 1)}
    for number in (1, PRODUCTS):
        (history,) = json.loads(printed(tmp_path, "history", f"L-{number}", "--json"))
        assert [version["version"] for version in history["versions"]] == [1, 2], history

    # and its dead letters, its schedule and its raw pages are there
    dead = json.loads(printed(tmp_path, "dead", "list", "--json"))
    assert {job for letter in dead["dead_letters"] for job in letter["jobs"]} == {"lamps-1", "lamps-2"}
    assert [one["name"] for one in json.loads(printed(tmp_path, "schedule", "list", "--json"))] == ["nightly"]
    printed(tmp_path, "reparse")
    assert len(printed(tmp_path, "export", "--format", "jsonl").splitlines()) == PRODUCTS
