"""`gossamer output`, and what other commands say of outputs, as a person sees it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.serving import SPIDER
from tests.sites.running import Park, park
from tests.unit.commandline import TOML, ProjectFolder, Said
from tests.unit.commandline import project as project

IDLE = "No process writes it now: `gossamer output run shop` does, and so do crawl, worker and up."
OUTPUT = '[outputs.shop]\nurl = "sqlite:///shop.db?table=products"\n'


@pytest.fixture(scope="module")
def site() -> Iterator[Park]:
    with park(pages=5) as opened:
        yield opened


@pytest.fixture
def shop(project: ProjectFolder, site: Park) -> ProjectFolder:
    """A project whose spider finds five things, and whose output is a table."""
    project.write("spiders/things.py", SPIDER.format(start=site.url()))
    local = '[fetch]\nallow_hosts = ["site0.localhost"]\n'
    project.write("gossamer.toml", TOML + local + OUTPUT)
    return project


def rows(shop: ProjectFolder) -> int:
    with sqlite3.connect(shop.folder / "shop.db") as file:
        return int(file.execute("SELECT count(*) FROM products").fetchone()[0])


def told_outputs(said: Said) -> list[str]:
    """The rows of the summary, as one reads them."""
    lines = [line.split() for line in said.err.splitlines()]
    return [" ".join(words[1:]) for words in lines if words[:1] == ["output"]]


def state(shop: ProjectFolder) -> dict[str, Any]:
    (one,) = shop.run("output", "list", "--json").json
    return {name: one[name] for name in ("state", "lag", "written")}


def test_a_crawl_names_its_outputs_and_what_they_have_written(shop: ProjectFolder) -> None:
    first = shop.run("crawl", "things")
    again = shop.run("crawl", "things", "--fresh")

    assert first.code == 0, first.err
    assert told_outputs(first) == ["shop: 5 changes written sqlite:///shop.db?table=products"]
    assert told_outputs(again) == ["shop: 0 changes written sqlite:///shop.db?table=products"]
    assert "Not written yet" not in first.err
    assert "gossamer export -o" not in first.err  # the records are somewhere already


def test_an_address_after_o_is_named_without_its_secrets(shop: ProjectFolder) -> None:
    said = shop.run("crawl", "things", "-o", "sqlite:///typed.db?table=typed", "-o", "things.jsonl")

    file, *others = told_outputs(said)
    assert file == "things.jsonl"
    assert {one.partition(": ")[2] for one in others} == {
        "5 changes written sqlite:///shop.db?table=products", "5 changes written sqlite:///typed.db?table=typed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("sqlite://shop.db", "Write three slashes and a path"),
        ("sqlite:///shop.db?tabel=products", "only ?table= may follow the file"),
        ("duckdb:///shop.duckdb/products", "write duckdb:///shop.duckdb?table=products"),
        ("sqlite:///shop.db?table=a;b", "cannot be the name of a table"),
        ("sqlite:///gossamer-data/records.db", "is a file of this project"),
        ("mongodb://db.example/shop", "Write the address as mongodb://host/database/collection"),
        ("folder:///lake/?format=xml", "There are parquet and jsonl"),
        ("postgresql://app:${NOWHERE}@db.example/shop/products", "NOWHERE"),
    ],
)
def test_an_address_that_cannot_be_is_refused_before_the_crawl(shop: ProjectFolder, address: str, said: str) -> None:
    crawled = shop.run("crawl", "things", "-o", address)

    assert (crawled.code, crawled.out) == (1, "")
    assert crawled.err.startswith("gossamer: ")
    assert said in crawled.err
    assert shop.run("job", "list", "--json").json == []


def test_a_replay_writes_files_alone(shop: ProjectFolder) -> None:
    shop.run("crawl", "things", "--quiet")

    said = shop.run("crawl", "things", "--replay", "-o", "sqlite:///again.db")

    assert said.code == 1
    assert said.err == (
        "gossamer: A replay stores nothing that an output could follow. With --replay, -o takes a file.\n"
    )


def test_what_is_written_is_up_to_date(shop: ProjectFolder) -> None:
    shop.run("crawl", "things", "--quiet")

    assert state(shop) == {"state": "up-to-date", "lag": 0, "written": 5}
    assert "up to date" in shop.run("output", "list").out
    assert shop.run("output", "show", "shop").lines[0] == "shop: everything is written."
    assert "utput" not in shop.run("status").out + shop.run("status").err


def test_a_paused_output_costs_a_crawl_nothing_and_goes_on_where_it_was(shop: ProjectFolder) -> None:
    assert shop.run("output", "pause", "shop").lines == ["shop: paused, nothing to write."]

    crawled = shop.run("crawl", "things")
    status = shop.run("status")

    assert crawled.code == 0
    assert told_outputs(crawled) == ["shop: 0 changes written, 5 to write"]  # and its target below
    assert "The output shop lacks 5 changes. It is paused: `gossamer output resume shop` goes on." in crawled.err
    assert "gossamer output show shop" in crawled.err
    assert state(shop) == {"state": "paused", "lag": 5, "written": 0}
    assert "Output shop: paused, 5 records to write. See `gossamer output show shop`." in status.out + status.err
    assert not (shop.folder / "shop.db").exists()

    assert shop.run("output", "resume", "shop").lines == [f"shop: 5 records to write. {IDLE}"]
    (listed,) = shop.run("output", "list", "--json").json
    assert (listed["state"], listed["error"]) == ("behind", IDLE)
    assert shop.run("output", "run", "--until-written", "--quiet").code == 0
    assert rows(shop) == 5
    assert state(shop) == {"state": "up-to-date", "lag": 0, "written": 5}


def test_an_output_that_stopped_is_in_the_status_with_its_reason(
    shop: ProjectFolder, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(shop.folder / "shop.db") as file:
        file.execute("CREATE TABLE products (title TEXT)")

    crawled = shop.run("crawl", "things")
    status = shop.run("status")
    checked = shop.run("output", "check", "shop")

    assert crawled.code == 0
    assert "The output shop lacks 5 changes." in crawled.err
    assert "The output shop has stopped: " in caplog.text
    assert "Output shop: stopped, 5 records to write." in status.out + status.err
    assert checked.code == 1
    assert checked.err.startswith("gossamer: ")
    with sqlite3.connect(shop.folder / "shop.db") as file:
        file.execute("DROP TABLE products")
    assert shop.run("output", "resume", "shop").code == 0
    assert shop.run("output", "run", "--until-written", "--quiet").code == 0
    assert rows(shop) == 5


def test_a_rewind_writes_every_record_again(shop: ProjectFolder) -> None:
    shop.run("crawl", "things", "--quiet")
    with sqlite3.connect(shop.folder / "shop.db") as file:
        file.execute("DELETE FROM products")

    assert shop.run("output", "rewind", "shop").lines == [f"shop: 5 records to write. {IDLE}"]
    assert shop.run("output", "run", "shop", "--until-written", "--quiet").code == 0

    assert rows(shop) == 5
    assert state(shop)["written"] == 10


def test_a_run_until_all_is_written_goes_by_the_settings_as_they_are_now(shop: ProjectFolder) -> None:
    shop.run("crawl", "things", "--quiet")
    toml = (shop.folder / "gossamer.toml").read_text()

    shop.write("gossamer.toml", toml + 'gone = "delete"\n')
    again = shop.run("output", "run", "--until-written")

    assert again.code == 0
    assert again.err.splitlines()[1:] == ["shop: 5 changes written", "Ended."]
    assert state(shop) == {"state": "up-to-date", "lag": 0, "written": 10}

    shop.write("gossamer.toml", toml + 'key = ["nothing"]\n')
    stopped = shop.run("output", "run", "--until-written")
    assert stopped.code == 1
    assert "The output shop lacks 5 changes." in stopped.err
    assert "no column 'nothing'" in stopped.err

    shop.write("gossamer.toml", toml)
    mended = shop.run("output", "run", "--until-written")
    assert mended.code == 0, mended.err
    assert "nothing" not in mended.err
    assert state(shop)["state"] == "up-to-date"


def test_check_says_what_it_found_and_writes_no_row(shop: ProjectFolder) -> None:
    said = shop.run("output", "check", "shop")

    assert (said.code, said.err) == (0, "")
    assert "products" in said.out
    assert shop.run("output", "check", "shop", "--json").json == {"name": "shop", "found": said.out.strip()}


def test_what_o_began_is_no_ones_trouble_later_and_can_be_removed(shop: ProjectFolder) -> None:
    shop.run("crawl", "things", "--limit", "2", "-o", "sqlite:///typed.db?table=typed", "--quiet")
    (name,) = {one["name"] for one in shop.run("output", "list", "--json").json} - {"shop"}
    shop.run("crawl", "things", "--fresh", "--quiet")  # writes more, and not there
    key = shop.run("sql", "SELECT _key FROM item LIMIT 1", "--json").json[0]["_key"]
    told = shop.run("forget", "--record", key, "--yes").out

    status = shop.run("status")
    listed = shop.run("output", "show", name).out
    state = (shop.folder / "gossamer-data" / "state.db").read_bytes()
    removed = shop.run("output", "remove", name)

    assert name not in status.out + status.err
    assert "records to write" in listed
    assert f"gossamer output remove {name}" in told
    assert key.encode() in state  # until it is removed, this finds the row in the target
    assert removed.lines == [
        f"{name} is removed. Its target stays as it is, with 1 row that was to be erased: erase there yourself."
    ]
    assert shop.run("output", "show", name).code == 1
    assert shop.run("output", "remove", "shop").err.startswith("gossamer: Take [outputs.shop] out of gossamer.toml")


@pytest.mark.parametrize("verb", ["show", "check", "pause", "resume", "rewind", "remove"])
def test_an_unknown_output_is_said_with_the_next_step(shop: ProjectFolder, verb: str) -> None:
    said = shop.run("output", verb, "shoop")

    assert (said.code, said.out) == (1, "")
    assert said.err == "gossamer: There is no output 'shoop'. `gossamer output list` lists them.\n"
    assert state(shop)["state"] == "up-to-date"  # nothing was made of that name


def test_run_of_an_unknown_output_or_without_any_says_so(project: ProjectFolder) -> None:
    assert "docs/outputs.md" in project.run("output", "run").err
    project.write("gossamer.toml", TOML + OUTPUT)
    assert "There is no output 'shoop'" in project.run("output", "run", "shoop").err


SIZES = """
from gossamer import Item, Spider

class Thing(Item, key="url"):
    url: str
    size: {type}

class Things(Spider):
    start_urls = ["{start}"]

    def parse(self, page):
        yield Thing(url=page.url, size={size!r})
        yield from page.follow_all(".links a")
"""


def test_a_field_that_changes_its_type_is_written_and_show_says_which_column_was_altered(
    shop: ProjectFolder, site: Park
) -> None:
    for type, size in (("int", 3), ("str", "large")):
        shop.write("spiders/things.py", SIZES.format(start=site.url(), type=type, size=size))
        assert shop.run("crawl", "things", "--fresh").code == 0

    with sqlite3.connect(shop.folder / "shop.db") as file:
        assert file.execute("SELECT size, count(*) FROM products GROUP BY size").fetchall() == [("large", 5)]
    assert "products has other types: size is TEXT (INTEGER before)." in shop.run("output", "show", "shop").out
    assert state(shop)["state"] == "up-to-date"
