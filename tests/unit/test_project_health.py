"""The checks of `gossamer doctor`, without a command line."""

from __future__ import annotations

from pathlib import Path

from gossamer.project.health import Finding, Level, examine


async def findings(folder: Path) -> dict[str, Finding]:
    return {finding.what: finding async for finding in examine(folder, offline=True)}


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
