"""`gossamer override`, as a user sees it: what may be set by hand, what it says, and the way back."""

from __future__ import annotations

import pytest

from tests.unit.commandline import project as project

TOML = """
[router]
budget_day = 100
[domains."shop.example"]
rate = "2/s"
concurrency = 3
[domains."*.uk"]
burst = 7
[routes.city]
pool = "city"
price = 2
[proxies.city]
urls = ["http://me:secret@192.0.2.7:8080"]
"""


@pytest.fixture
def folder(project):
    project.write("gossamer.toml", TOML)
    return project


def value(folder, key):
    return folder.run("settings", key, "--json").json[key]


def test_a_setting_is_set_by_hand_listed_with_what_the_file_says_and_taken_back(folder):
    said = folder.run("override", "set", "domains.shop.example.rate", "6/m", "--reason", "they called")
    assert (said.code, said.out.splitlines()[0][:50]) == (0, "domains.shop.example.rate: 6/m instead of 2/s, set")

    (one,) = folder.run("override", "list", "--json").json
    assert (one["value"], one["usual"], one["by"], one["reason"]) == ("6/m", "2/s", "local", "they called")
    assert "6/m" in folder.run("override", "list").out
    shown = folder.run("site", "show", "shop.example", "--json").json
    assert (shown["rate"], shown["concurrency"], shown["spacing"]) == ("6/m", 3, 10.0)
    (line,) = folder.run("audit", "--json").json
    assert (line["action"], line["target"]) == ("set by hand:", "domains.shop.example.rate = 6/m, was 2/s")

    assert "as the settings say: 2/s" in folder.run("override", "remove", "domains.shop.example.rate").out
    assert folder.run("site", "show", "shop.example", "--json").json["rate"] == "2/s"
    assert "Nothing is set by hand" in folder.run("override", "list").out
    assert folder.run("override", "remove", "domains.shop.example.rate").code == 1


def test_one_setting_of_a_site_leaves_the_others_that_a_pattern_gives_it(folder):
    folder.run("override", "set", "domains.shop.uk.rate", "1/m")
    shown = folder.run("site", "show", "shop.uk", "--json").json
    assert (shown["rate"], shown["burst"]) == ("1/m", 7)


def test_the_log_level_is_set_for_all_processes_for_a_machine_or_for_one_process(folder):
    folder.run("override", "set", "log.level", "warning")
    folder.run("override", "set", "log.levels.den", "error")
    folder.run("override", "set", "log.levels.den/7", "debug")
    found = {one["key"]: (one["value"], one["usual"]) for one in folder.run("override", "list", "--json").json}
    assert found == {
        "log.level": ("warning", "info"),
        "log.levels.den": ("error", ""),
        "log.levels.den/7": ("debug", ""),
    }


def test_an_override_takes_the_place_of_the_one_before(folder):
    folder.run("override", "set", "router.budget_day", "200")
    folder.run("override", "set", "router.budget_day", "none", "--lasts", "2h")
    (one,) = folder.run("override", "list", "--json").json
    assert (one["value"], one["usual"], one["until"] is not None) == ("none", "100", True)
    lines = [line["target"] for line in folder.run("audit", "--json").json]
    assert lines == ["router.budget_day = none for 2h, was 200", "router.budget_day = 200, was 100"]


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("fetch.allow_private", "yes", "cannot be set by hand"),
        ("records", "sqlite:///else.db", "cannot be set by hand"),
        ("schedules.night.command", "rm", "cannot be set by hand"),
        ("outputs.shop.use", "os:system", "cannot be set by hand"),
        ("outputs.shop.url", "https://elsewhere.example/", "cannot be set by hand"),
        ("domains.shop.example.robots", "no", "cannot be set by hand"),
        ("domains.shop.example.rate", "fast", "is not a rate"),
        ("domains.shop.example.concurrency", "many", "a whole number"),
        ("domains.www.shop.example.rate", "1/s", "belong to the site shop.example"),
        ("domains.shop.example.route", "moon", "neither easy nor hard nor a route"),
        ("domains.shop.example.skip.moon", "yes", "no route 'moon'"),
        ("router.budget_day", "0", "above 0"),
        ("router.budget_day", "1", "do not pay for one page by route city"),
        ("proxies.moon.skip.x", "yes", "no proxy pool"),
        ("proxies.city.skip.http://192.0.2.9:80", "yes", "is not a proxy of city"),
        ("log.level", "loud", "must be debug, info, warning or error, not loud"),
        ("log.levels.host/1", "", "must be debug, info, warning or error"),
        ("log.lvl", "debug", "Did you mean log.level?"),
        ("alerts.moon.threshold", "1", "there is no such alert"),
        ("alerts.success.severity", "mild", "must be info, warning or critical"),
        ("alerts.success.window", "1s", "between 1m and 30d"),
    ],
)
def test_what_cannot_be_in_force_is_refused_with_the_reason(folder, key, value, error):
    said = folder.run("override", "set", key, value)

    assert (said.code, error in said.err, "Traceback" in said.err) == (1, True, False)
    assert "secret" not in said.err
    assert folder.run("override", "list", "--json").json == []


def test_one_that_does_not_fit_the_settings_of_this_machine_is_left_out_and_said(folder):
    folder.run("override", "set", "domains.shop.example.route", "city")
    folder.run("override", "set", "domains.shop.example.rate", "6/m")
    folder.write("gossamer.toml", '[domains."shop.example"]\nrate = "2/s"\n')

    found = {one["key"]: one["fault"] for one in folder.run("override", "list", "--json").json}
    assert found["domains.shop.example.rate"] is None
    assert "neither easy nor hard nor a route" in found["domains.shop.example.route"]
    assert folder.run("site", "show", "shop.example", "--json").json["rate"] == "6/m"


def test_in_an_empty_folder_nothing_is_set_by_hand_and_no_files_are_made(project):
    assert "Nothing is set by hand" in project.run("override", "list").out
    assert not (project.folder / "gossamer-data").exists()
