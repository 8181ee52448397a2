"""`gossamer new`, `spiders`, `settings`, `doctor` and `version`, as a user sees them."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess

import pytest

from gossamer import Money, Page, __version__
from gossamer.cli.app import app
from gossamer.cli.verbs import GROUPS, HOMES, load_verb
from gossamer.model.page import Headers, Snapshot
from gossamer.parse.discovery import list_spiders
from gossamer.settings import load
from tests.unit.commandline import COMMAND, on_a_terminal
from tests.unit.commandline import project as project
from tests.unit.crawled import crawl_half


def test_the_version_is_printed_by_verb_and_by_flag(project):
    assert project.run("version").out == f"gossamer {__version__}\n"
    assert project.run("--version").out == f"gossamer {__version__}\n"


@pytest.mark.parametrize(
    ("name", "module", "spider"), [("books", "books", "books"), ("Book_shop", "Book_shop", "book-shop")]
)
def test_new_makes_a_project_whose_settings_and_spider_load(project, name, module, spider):
    said = project.run("new", name)

    folder = project.folder / name
    assert said.code == 0
    assert f"gossamer crawl {spider} " in said.out
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {
        "gossamer.toml", f"spiders/{module}.py", "README.md", ".gitignore",
    }  # fmt: skip
    assert load(start=folder).root == folder
    catalogue = list_spiders(folder, "spiders")
    assert ([spec.name for spec in catalogue.spiders], catalogue.broken) == ([spider], ())
    assert "gossamer-data/" in (folder / ".gitignore").read_text()


def test_the_spider_of_a_new_project_understands_the_shop_it_is_made_for(project):
    project.run("new", "books")
    (spec,) = list_spiders(project.folder / "books", "spiders").spiders
    spider = spec.spider()

    followed = list(
        spider.parse(page_of('<article><h3><a href="dune">Dune</a></h3></article><li class="next"><a href="2">'))
    )
    (book,) = spider.book(
        page_of('<h1>Dune</h1><p class="price_color">£9.50</p><p class="availability">In stock (3)</p>')
    )

    assert [(request.url, request.kind) for request in followed] == [
        ("https://books.example/dune", "book"),
        ("https://books.example/2", "parse"),
    ]
    assert (book.title, book.price, book.in_stock) == ("Dune", Money.parse("£9.50"), True)


def page_of(html: str) -> Page:
    url = "https://books.example/"
    headers = Headers([("Content-Type", "text/html; charset=utf-8")])
    return Page(Snapshot(url=url, requested_url=url, status=200, headers=headers, body=html.encode(), fetched_at=0.0))


def test_new_with_a_url_starts_there_and_remembers_a_local_host(project):
    project.run("new", "shop", "--url", "http://localhost:8000/a?b=1")

    (spec,) = list_spiders(project.folder / "shop", "spiders").spiders
    assert list(spec.spider.start_urls) == ["http://localhost:8000/a?b=1"]
    assert load(start=project.folder / "shop").fetch.allow_hosts == ("localhost",)


def test_new_overwrites_nothing(project):
    letter = project.write("books/letter.txt", "dear aunt")

    said = project.run("new", "books")

    assert said.code == 1
    assert "exists already" in said.err
    assert [path.name for path in (project.folder / "books").iterdir()] == [letter.name]


@pytest.mark.parametrize("name", ["2books", "../books", "a b", "", "spider", "none", "book.shop", "-", "bücher"])
def test_a_name_that_can_be_none_is_refused_in_one_line(project, name):
    said = project.run("new", "--", name)

    assert said.code == 1
    assert said.err.count("\n") == 1
    assert [path.name for path in project.folder.iterdir()] == ["gossamer.toml"]


def test_new_refuses_what_is_no_url_before_it_makes_anything(project):
    said = project.run("new", "books", "--url", "books.example")

    assert said.code == 1
    assert "Did you mean https://books.example ?" in said.err
    assert not (project.folder / "books").exists()


def test_spiders_lists_those_that_load_and_names_the_line_of_those_that_do_not(project):
    project.write(
        "spiders/books.py",
        'from gossamer import Spider\n\nclass Books(Spider):\n    """Every book."""\n    start_urls = ["https://x.example/"]\n',
    )
    project.write("spiders/films.py", "from gossamer import Spider\n\nclass Films(Spider)\n    pass\n")

    said = project.run("spiders")

    assert said.code == 0
    assert project.run("spiders", "--strict").code == 1
    assert said.lines[1].split(maxsplit=2) == ["books", "spiders/books.py", "Every book."]
    assert re.search(r"broken .*films\.py, line 3: syntax error", said.out)
    as_json = project.run("spiders", "--json").json
    assert ([spider["name"] for spider in as_json["spiders"]], as_json["broken"][0]["line"]) == (["books"], 3)


def test_a_project_without_spiders_says_how_to_get_one(project):
    said = project.run("spiders")

    assert said.code == 0
    assert "gossamer new" in said.out


def test_settings_tell_each_value_and_where_it_came_from(project, monkeypatch):
    monkeypatch.setenv("GOSSAMER_CRAWL__DEPTH", "3")

    rows = {line.split()[0]: line for line in project.run("settings").lines}

    assert rows["crawl.depth"].split() == ["crawl.depth", "3", "GOSSAMER_CRAWL__DEPTH"]
    assert rows["politeness.rate"].split() == ["politeness.rate", "unlimited", "gossamer.toml"]
    assert rows["fetch.total_timeout"].split() == ["fetch.total_timeout", "2m", "default"]
    assert rows["domains.slow.example.rate"].split()[1] == "1/m"


def test_every_setting_is_printed_in_a_notation_that_is_read_back(project):
    project.write("gossamer.toml", "")
    listed = project.run("settings", "--json").json

    values = {key: entry["value"] for key, entry in listed.items()}
    same = load(
        start=project.folder, environ={}, flags={key: value for key, value in values.items() if value != "none"}
    )
    defaults = load(start=project.folder, environ={})

    for group in ("crawl", "politeness", "fetch", "retry", "lease", "urls", "store"):
        assert getattr(same, group) == getattr(defaults, group)


def test_one_setting_can_be_asked_for_in_a_script(project):
    assert project.run("settings", "politeness.rate").out == "unlimited\n"
    assert project.run("settings", "crawl.depth", "--json").json == {"crawl.depth": {"value": None, "from": "default"}}
    assert [line.split()[0] for line in project.run("settings", "lease").lines[1:]] == [
        "lease.duration", "lease.max_deliveries",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "meant"), [("fetch.max_bdy", "fetch.max_body"), ("rate", "crawl.rate"), ("crawl.dept", "crawl.depth")]
)
def test_a_misspelled_setting_gets_a_suggestion(project, key, meant):
    said = project.run("settings", key)

    assert said.code == 1
    assert f"Did you mean {meant}?" in said.err


def test_an_unknown_setting_in_the_file_stops_every_verb_with_a_suggestion(project):
    project.write("gossamer.toml", "[fetch]\nmax_boddy = '1MB'\n")

    for verb in (["settings"], ["status"], ["spiders"], ["export"], ["why", "https://x.example/"]):
        said = project.run(*verb)
        assert (said.code, said.out) == (1, "")
        assert "there is no setting 'fetch.max_boddy'. Did you mean fetch.max_body?" in said.err

    project.write("gossamer.toml", "[fetch]\nproject = 'books'\n")
    assert "Did you mean project? Then write project above the first [table] of the file." in project.run("status").err


def test_passwords_in_addresses_are_not_printed(project, monkeypatch):
    monkeypatch.setenv("GOSSAMER_STATE", "redis://joe:hushhush@db.example:6379/0")
    project.write("gossamer.toml", '[fetch]\nheaders = { Authorization = "Bearer hushhush" }\n')

    for words in (["settings"], ["settings", "--json"], ["settings", "state"], ["status"], ["doctor"]):
        said = project.run(*words)
        assert "hushhush" not in said.out + said.err
    assert project.run("settings", "state").out == "redis://***@db.example:6379/0\n"


def test_doctor_finds_a_sound_project_sound(project):
    project.fill(crawl_half)

    said = project.run("doctor")

    assert said.code == 0
    levels = {entry["what"]: entry["level"] for entry in project.run("doctor", "--json").json}
    assert {levels[what] for what in ("python", "packages", "sqlite", "settings", "state", "records", "archive")} == {
        "ok"
    }
    assert levels["project"] == "ok"


def test_doctor_asks_the_internet_only_when_told_to(project):
    levels = {
        words: {one["what"] for one in project.run("doctor", "--json", *words).json} for words in ((), ("--online",))
    }

    assert "network" not in levels[()]
    assert levels[("--online",)] - levels[()] == {"network"}


def findings(project) -> dict[str, dict[str, str]]:
    said = project.run("doctor", "--json")
    return {"code": said.code, **{entry["what"]: entry for entry in said.json}}


@pytest.mark.parametrize(("written", "per_second"), [("30/m", 0.5), ("5/s", 5.0), ("2", 2.0)])
def test_the_rate_of_a_key_is_written_as_all_rates_are(project, written, per_second):
    project.run("keys", "add", "robot", "--rate", written)
    assert [key["rate"] for key in project.run("keys", "list", "--json").json] == [per_second]


def test_a_rate_that_a_key_cannot_have_is_told(project):
    assert "write it like 5/s, 30/m" in project.run("keys", "add", "robot", "--rate", "often").err


def test_doctor_changes_nothing_where_nothing_was_crawled(project):
    assert project.run("doctor").code == 0
    assert not (project.folder / "gossamer-data").exists()


def test_doctor_finds_a_damaged_state_file(project):
    project.fill(crawl_half)
    state = project.folder / "gossamer-data" / "state.db"
    content = bytearray(state.read_bytes())
    content[4096 * 3 : 4096 * 6] = b"\xa5" * 4096 * 3
    state.write_bytes(content)

    found = findings(project)

    assert (found["code"], found["state"]["level"]) == (1, "fail")
    assert "Move" in found["state"]["advice"]


def test_doctor_finds_a_state_file_of_a_newer_version(project):
    project.fill(crawl_half)
    with sqlite3.connect(project.folder / "gossamer-data" / "state.db") as connection:
        connection.execute("PRAGMA user_version = 999")

    found = findings(project)

    assert (found["code"], found["project"]["level"]) == (1, "fail")
    assert "newer Gossamer" in found["project"]["detail"]


def test_doctor_finds_a_broken_spider_and_bad_settings(project):
    project.write("spiders/films.py", "import nothing_of_that_name\n")
    found = findings(project)
    assert (found["code"], found["spiders"]["level"]) == (1, "fail")
    assert "films.py, line 1" in found["spiders"]["detail"]

    project.write("gossamer.toml", "[crawl]\nconcurrency = 0\n")
    found = findings(project)
    assert (found["code"], found["settings"]["level"]) == (1, "fail")


def test_doctor_warns_of_too_few_open_files(project):
    project.write("gossamer.toml", "[crawl]\nconcurrency = 100000000\n")

    found = findings(project)

    assert (found["code"], found["open files"]["level"]) == (0, "warn")
    assert "ulimit -n" in found["open files"]["advice"]


def test_a_terminal_gets_colour_and_words_that_are_not_broken(project):
    project.fill(crawl_half)

    said = on_a_terminal(project.folder, "dead", "list", columns=40)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)

    assert "\x1b[" in said
    assert "https://shop.example/broken" in plain
    assert "JOB" not in plain.splitlines()[0]  # a column that can be spared
    assert "gossamer dead show" in plain
    folded = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal(project.folder, "settings", "urls", columns=70))
    assert all(len(line) <= 70 for line in folded.splitlines())
    assert "jsessionid" in folded


def test_what_does_not_fit_into_a_narrow_terminal_is_told_in_paragraphs(project):
    project.fill(crawl_half)

    said = on_a_terminal(project.folder, "why", "https://shop.example/broken", columns=60)
    empty = on_a_terminal(project.folder, "schedule", "list", columns=60)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said + empty)

    assert max(map(len, plain.splitlines())) <= 60
    assert re.search(r"\n    job books-1  try \d+  status \d+  latency \d+ ms", plain.replace("\r", ""))
    assert "or with\r\na table [schedules.NAME]" in plain


@pytest.mark.parametrize("words", [["settings"], ["settings", "--json"], ["version"]], ids=" ".join)
def test_the_installed_command_ends_quietly_when_its_reader_leaves(project, words):
    reader, writer = os.pipe()
    os.close(reader)

    process = subprocess.run([COMMAND, *words], cwd=project.folder, stdout=writer, stderr=subprocess.PIPE, check=False)

    os.close(writer)
    assert (process.returncode, process.stderr) == (0, b"")


def home_of(command) -> str:
    return command.callback.__module__.rpartition(".")[2]


def test_every_verb_is_found_in_the_file_that_is_said_to_hold_it():
    for verb in HOMES:
        load_verb(verb)
    homes = {str(command.name): home_of(command) for command in app.registered_commands}
    groups = {
        str(group.name): {home_of(command) for command in group.typer_instance.registered_commands}
        for group in app.registered_groups
    }

    assert homes.keys() == HOMES.keys() - groups.keys()
    assert {verb: home for verb, home in homes.items() if home not in (HOMES[verb], "operations")} == {}
    elsewhere = {verb for verb, files in groups.items() if HOMES[verb] not in files}
    assert [verb for verb in elsewhere if "operations" not in groups[verb]] == []


def test_the_help_has_every_verb_in_a_group_with_ten_words_at_most(project):
    told = {verb: words for verbs in GROUPS.values() for verb, words in verbs.items()}
    assert {*told} == {*HOMES}
    assert {verb: words for verb, words in told.items() if len(words.split()) > 10} == {}
    help = project.run("--help").out
    assert sorted(GROUPS, key=help.index) == list(GROUPS)
    assert "Every version of a record." in help


def test_a_verb_that_the_help_lists_after_a_colon_is_there():
    for verb in HOMES:
        load_verb(verb)
    groups = {
        str(group.name): {str(command.name) for command in group.typer_instance.registered_commands}
        for group in app.registered_groups
    }
    lists = {
        verb: words for verbs in GROUPS.values() for verb, words in verbs.items() if verb in groups and ": " in words
    }
    assert {*lists} >= {"alerts", "callbacks", "spool", "keys", "output", "incident", "dead"}
    for verb, words in lists.items():
        named = {one.split()[0] for one in words.rstrip(".").partition(": ")[2].split(", ")}
        assert named <= groups[verb], f"gossamer {verb}: {named - groups[verb]}"
