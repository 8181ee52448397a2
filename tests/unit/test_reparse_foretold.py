"""`gossamer reparse --dry-run`: what it tells is what the run then does, whichever pages are chosen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.archived import crawled
from tests.unit.commandline import ProjectFolder
from tests.unit.commandline import project as project
from tests.unit.test_reparse import reparse, spider, stored

pytestmark = pytest.mark.long

Change = tuple[str, str, str | None, str | None]  # kind, key, title before, title after


def titles(project: ProjectFolder) -> dict[str, str]:
    return {sku: one["title"] for sku, one in stored(project).items() if "gone_since" not in one["_meta"]}


def foretold(project: ProjectFolder, *choice: str) -> set[Change]:
    before = project.run("export", "--format", "jsonl").raw
    said = reparse(project, "--dry-run", "--json", *choice)
    assert project.run("export", "--format", "jsonl").raw == before  # it has stored nothing
    told: list[dict[str, Any]] = [json.loads(line) for line in said.lines]
    return {
        (one["kind"], one["key"], *((one[side] or {}).get("title") for side in ("before", "after"))) for one in told
    }  # type: ignore[misc]


def done(project: ProjectFolder, *choice: str) -> set[Change]:
    """The changes that the run makes, seen from outside."""
    before = titles(project)
    reparse(project, *choice)
    after = titles(project)
    found: set[Change] = {("gone", sku, before[sku], None) for sku in before.keys() - after.keys()}
    found |= {("added", sku, None, after[sku]) for sku in after.keys() - before.keys()}
    both = before.keys() & after.keys()
    return found | {("changed", sku, before[sku], after[sku]) for sku in both if before[sku] != after[sku]}


def test_new_changed_and_gone_records_are_told_before_they_are_made(project: ProjectFolder) -> None:
    spider(project)
    project.fill(crawled("shop", {"/list": "<li>1</li><li>2</li>"}))
    assert foretold(project) == {("added", "1", None, "from the list"), ("added", "2", None, "from the list")}
    reparse(project)

    spider(project, listed="renamed", without="2")
    told = foretold(project)
    assert told == {("changed", "1", "from the list", "renamed"), ("gone", "2", "from the list", None)}
    assert done(project) == told


def test_a_record_that_a_mended_spider_finds_again_is_told(project: ProjectFolder) -> None:
    spider(project)
    project.fill(crawled("shop", {"/list": "<li>1</li><li>2</li>"}))
    reparse(project)
    spider(project, without="2")  # somebody breaks it
    assert done(project) == {("gone", "2", "from the list", None)}

    spider(project)
    assert {(kind, sku) for kind, sku, _, _ in foretold(project)} == {("changed", "2")}
    assert done(project) == {("added", "2", None, "from the list")}


def test_only_chosen_pages_count_and_an_older_copy_changes_nothing_newer(project: ProjectFolder) -> None:
    spider(project)
    project.fill(crawled("shop", {"/a": "<li>1</li>", "/b": "<li>2</li>"}))
    project.fill(crawled("shop", {"/a": "<li>1</li><li>3</li>"}))
    reparse(project)
    spider(project, listed="renamed")
    jobs = [one["id"] for one in project.run("status", "--json").json if one["name"] == "shop"]
    assert len(jobs) == 2

    for job in jobs:
        told = foretold(project, "--job", job)
        assert done(project, "--job", job) == told
    assert titles(project) == dict.fromkeys("123", "renamed")


def test_pages_that_failed_are_told_apart_and_pages_of_nobody_are_left_out(project: ProjectFolder) -> None:
    spider(project)
    project.fill(crawled("shop", {"/good": "<li>1</li>"}))
    reparse(project)
    project.fill(crawled("shop", {"/bad": "<li>2</li>"}, broken=True))
    project.fill(crawled("stranger", {"/other": "<li>3</li>"}))

    told = foretold(project, "--failed", "--spider", "shop")
    assert told == {("added", "2", None, "from the list")}
    assert done(project, "--failed", "--spider", "shop") == told

    left_out = reparse(project, "--dry-run")
    assert "1 page left out" in left_out.err
    assert "--spider FILE --as stranger" in left_out.err.replace("\n", " ")


def test_no_more_changes_are_shown_than_wanted_and_all_are_counted(project: ProjectFolder) -> None:
    spider(project)
    project.fill(crawled("shop", {"/list": "".join(f"<li>{n}</li>" for n in range(7))}))

    said = reparse(project, "--dry-run", "--limit", "2")

    assert "7 would be new or changed" in said.out
    assert "Nothing was stored" in said.out
    assert said.out.count("+ Thing") == 2
    assert "And 5 more" in said.out
    nothing = reparse(project, "--dry-run", "--since", "2099-01-01")
    assert nothing.code == 1
    assert "No archived page matches" in nothing.err
