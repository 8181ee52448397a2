"""The checks of `gossamer doctor`, without a command line."""

from __future__ import annotations

from pathlib import Path

from gossamer.project.upkeep.doctor import DoctorFinding, Level, examine
from tests.services.ports import free_port


async def findings(folder: Path) -> dict[str, DoctorFinding]:
    return {finding.what: finding async for finding in examine(folder)}


async def test_an_empty_folder_can_be_crawled_from_and_stays_empty(tmp_path):
    found = await findings(tmp_path)

    assert Level.FAIL not in {finding.level for finding in found.values()}
    assert "created by the first crawl" in found["state"].detail
    assert list(tmp_path.iterdir()) == []


async def test_settings_that_cannot_be_read_end_the_examination(tmp_path):
    (tmp_path / "gossamer.toml").write_text("[crawl]\ndeep = 3\n")

    found = await findings(tmp_path)

    assert found["settings"].level is Level.FAIL
    assert found["settings"].advice
    assert "spiders" not in found


async def test_a_schedule_without_its_spider_is_a_warning_and_a_broken_one_a_failure(tmp_path):
    table = '[schedules.prices]\nspider = "nobody"\nevery = "1h"\n'
    (tmp_path / "gossamer.toml").write_text(table)
    assert (await findings(tmp_path))["schedules"].level is Level.WARN

    (tmp_path / "gossamer.toml").write_text(table.replace("1h", "often"))
    assert Level.FAIL in {finding.level for finding in (await findings(tmp_path)).values()}


async def test_two_spiders_of_one_name_are_a_warning_that_names_their_files(tmp_path):
    (tmp_path / "gossamer.toml").write_text("")
    (tmp_path / "spiders").mkdir()
    for name in ("one.py", "two.py"):
        text = "from gossamer import Spider\nclass Books(Spider):\n    start_urls = ['https://a.example/']\n"
        (tmp_path / "spiders" / name).write_text(text)

    told = [finding async for finding in examine(tmp_path) if finding.what == "spiders"]

    assert [(one.level, one.detail) for one in told] == [
        (Level.WARN, "2 are called books: one.py, two.py"),
        (Level.OK, "books"),
    ]


async def test_each_server_that_does_not_answer_is_named_by_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    away = f"127.0.0.1:{free_port()}"  # nobody listens there
    (tmp_path / "gossamer.toml").write_text(
        f'project = "books"\nstate = "redis://{away}/0"\nrecords = "postgresql://crawler@{away}/crawls"\n'
        f'archive = "s3://pages/books?endpoint=http://{away}&region=us-east-1"\n'
    )

    found = await findings(tmp_path)

    assert {role: found[role].level for role in ("state", "records", "archive")} == dict.fromkeys(
        ("state", "records", "archive"), Level.FAIL
    )
    assert "Redis" in found["state"].detail
    assert "PostgreSQL" in found["records"].detail
    assert "project" not in found


async def test_a_browser_that_a_route_needs_is_started(tmp_path):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho a library is missing >&2\nexit 1\n")
    broken.chmod(0o755)
    browser = f'[browser]\nexecutable = "{broken}"\n'
    (tmp_path / "gossamer.toml").write_text(browser)
    unused = (await findings(tmp_path))["browser"]
    assert (unused.level, unused.detail) == (Level.OK, "installed; it was not started, since no route needs one")

    (tmp_path / "gossamer.toml").write_text(browser + '[router]\nladder = ["direct", "browser"]\n')
    needed = (await findings(tmp_path))["browser"]
    assert needed.level is Level.FAIL
    assert needed.detail.startswith("The browser could not be started")
