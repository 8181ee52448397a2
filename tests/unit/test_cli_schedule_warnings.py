"""What `gossamer schedule add` warns of, and what no `gossamer schedule` shows."""

from __future__ import annotations

import pytest

from tests.unit.commandline import project as project
from tests.unit.test_cli_schedule import add, names
from tests.unit.test_cli_schedule import shop as shop

CAUTIONS = {
    "file": (["--file", "urls.txt"], "There is no file {folder}/urls.txt on this machine."),
    "program": (["--command", "no-such-program --password hunter2"], "There is no program no-such-program on this"),
    "program of the project": (["--command", "./list.sh"], "There is no program ./list.sh on this machine."),
    "budget": (["--budget", "10"], "A budget of 10 a day is 0.42 fetches for each of 24 runs a day: most runs fetch"),
}


@pytest.mark.parametrize("caution", CAUTIONS)
def test_what_may_be_a_mistake_is_told_and_added_all_the_same(shop, caution):
    words, expected = CAUTIONS[caution]

    said = add(shop, "prices", "--every", "1h", *words)

    assert said.err.startswith(f"Warning: {expected.format(folder=shop.folder.resolve())}")
    assert said.err.count("\n") == 1
    assert "hunter2" not in said.err + said.out
    assert names(shop) == ["prices"]


def test_what_is_in_order_is_added_without_a_warning(shop):
    shop.write("urls.txt", "https://a.example/")
    shop.write("list.sh", "#!/bin/sh").chmod(0o755)

    for words in (["--file", "urls.txt"], ["--command", "./list.sh"], ["--command", "sh -c x"], ["--budget", "24"]):
        assert add(shop, "prices", "--every", "1h", *words, "--replace").err == ""
    assert add(shop, "often", "--cron", "*/5 * * * *", "--budget", "288").err == ""
    assert "for each of 288 runs a day" in add(shop, "more", "--cron", "*/5 * * * *", "--budget", "287").err


def test_no_password_of_a_source_is_shown(shop):
    secret = "http://user:hunter2@shop.example/"
    add(shop, "pages", "--every", "1h", "--url", f"{secret}{{1..9}}")
    add(shop, "map", "--every", "1h", "--sitemap", secret)
    add(shop, "program", "--every", "1h", "--command", "python --password hunter2")

    for words in (
        ["list"],
        ["list", "--json"],
        *(["show", name, *more] for name in names(shop) for more in ([], ["--json"])),
    ):
        said = shop.run("schedule", *words)
        assert said.code == 0
        assert "hunter2" not in said.out + said.err
    assert "user:***@shop.example" in shop.run("schedule", "show", "map").out
