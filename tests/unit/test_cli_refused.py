"""What a person reads of a site that refuses every page: that there are routes, where none is set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sites.blocking import World, blocking_world
from tests.unit.commandline import TOML, ProjectFolder
from tests.unit.commandline import project as project

HINT = "There is no other route to try it by: docs/routes.md says how to add one."
SECOND = '[proxies.dc]\nurls = ["http://127.0.0.1:9"]\nallow_private = true\n[routes.dc]\npool = "dc"\nprice = 2\n'


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with blocking_world({"shy.localhost": "direct-shy"}, pages=2) as opened:
        yield opened


@pytest.fixture
def refused(project: ProjectFolder, world: World) -> ProjectFolder:
    project.write("gossamer.toml", f'{TOML}\n[fetch]\nallow_hosts = ["shy.localhost"]\n')
    return project


def test_every_place_that_tells_of_the_refusal_says_that_there_is_no_other_route(
    refused: ProjectFolder, world: World
) -> None:
    url = world.url("shy.localhost", 1)
    probe = f"gossamer fetch {url} --route browser"

    crawled = refused.run("crawl", url)

    assert crawled.code == 1
    assert HINT in crawled.err
    assert probe in crawled.err
    for words in (("why", url), ("dead", "list"), ("dead", "show", url)):
        said = refused.run(*words)
        assert HINT in " ".join(said.out.split()), words
        assert "dead replay" not in said.out, words
    assert probe in refused.run("why", url).out
    assert "There is one route, direct." in refused.run("routes").out


def test_with_a_second_route_a_replay_is_the_next_step(refused: ProjectFolder, world: World) -> None:
    url = world.url("shy.localhost", 1)
    refused.run("crawl", url, "--quiet")
    toml = (refused.folder / "gossamer.toml").read_text()

    refused.write("gossamer.toml", toml + SECOND)

    assert "dead replay" in refused.run("why", url).out
