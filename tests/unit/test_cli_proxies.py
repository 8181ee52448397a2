"""`gossamer proxies`, as a user sees it: how proxies fare, whether they work, and the end of their rests."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from gossamer.model.route import ProxyOutcome
from gossamer.routing.proxies.contract import ProxyReport, RestTerms
from tests.services.proxies import http_proxy, socks_proxy
from tests.sites.running import park
from tests.unit.commandline import ProjectFolder
from tests.unit.commandline import project as project

PASSWORD = "s3cr3t-pa55"
TOML = f"""
[proxies.fast]
urls = ["http://ann:{PASSWORD}@a.example:80", "http://ann:{PASSWORD}@b.example:80", "socks5://c.example:1080"]

[proxies.home]
kind = "residential"
gateway = "http://gate.example:8000"
user = "ann"
password = "{PASSWORD}"
username = "{{user}}-{{session}}"
"""


def used(project: ProjectFolder) -> None:
    """Proxy a was banned a moment ago, b works, c was never used; the gateway fails."""

    async def use(system):
        ok, banned, failed = ProxyOutcome.OK, ProxyOutcome.BANNED, ProxyOutcome.FAILED
        reports = [
            ProxyReport(proxy="http://a.example:80", outcome=ok, times=3, seconds=0.2, bytes=3000, credits=1.5),
            ProxyReport(proxy="http://a.example:80", outcome=banned, words="403, a challenge"),
            ProxyReport(proxy="http://b.example:80", outcome=ok, times=4, seconds=0.4, bytes=4000, credits=2.0),
            ProxyReport(proxy="http://old.example:80", outcome=ok),
        ]
        await system.state.proxies.report("fast", reports, RestTerms(cooldown=3600))
        failing = [ProxyReport(proxy="http://gate.example:8000", outcome=failed, times=9, words="hung up")]
        await system.state.proxies.report("home", failing, RestTerms(patience=20, bans_rest=False))

    project.fill(use)


def test_without_pools_one_is_told_how_to_begin_and_no_files_are_made(project):
    said = project.run("proxies")

    assert said.code == 0
    assert "[proxies.NAME]" in said.out
    assert project.run("proxies", "--json").json == []
    assert not (project.folder / "gossamer-data").exists()


def test_proxies_that_were_never_used_are_shown_as_new_and_no_files_are_made(project):
    project.write("gossamer.toml", TOML)

    fast, home = project.run("proxies", "--json").json

    assert [(one["proxy"], one["state"], one["tries"]) for one in fast["proxies"]] == [
        ("http://a.example:80", "new", 0),
        ("http://b.example:80", "new", 0),
        ("socks5://c.example:1080", "new", 0),
    ]
    assert [one["proxy"] for one in home["proxies"]] == ["http://gate.example:8000"]
    assert not (project.folder / "gossamer-data").exists()


def test_every_proxy_is_shown_with_its_state_and_figures_and_without_secrets(project):
    project.write("gossamer.toml", TOML)
    used(project)

    said = project.run("proxies")

    assert PASSWORD not in said.out + said.err
    lines = {line.split()[0]: line.split() for line in reversed(said.lines) if line.strip()}
    assert lines["fast"][1:7] == ["datacenter", "3", "1", "9", "89%", "1"]
    rest = lines["http://a.example:80"]
    assert rest[1:3] == ["resting", "until"]
    assert rest[4:7] == ["4", "75%", "1"]
    assert "challenge" in " ".join(rest)
    assert lines["http://b.example:80"][1:8] == ["ok", "4", "100%", "0", "400", "ms", "4000"]
    assert lines["socks5://c.example:1080"][1:3] == ["new", "0"]
    assert lines["http://old.example:80"][1:3] == ["not", "listed"]
    assert lines["http://gate.example:8000"][1:3] == ["failing", "9"]


def test_proxies_that_rest_for_some_sites_are_counted_apart(project):
    project.write("gossamer.toml", TOML)
    used(project)

    async def refuse(system):
        banned = ProxyReport(proxy="http://b.example:80", outcome=ProxyOutcome.BANNED, site="shop.example")
        await system.state.proxies.report("fast", [banned], RestTerms(cooldown=3600))

    project.fill(refuse)

    said = project.run("proxies")
    (pool,) = [line for line in said.lines if line.startswith("fast ")]
    assert "1, 1 for some sites" in pool
    assert "ok, rests for shop.example" in said.out


def test_as_json_there_are_the_same_figures_for_each_proxy_and_pool(project):
    project.write("gossamer.toml", TOML)
    used(project)

    (fast,) = project.run("proxies", "show", "fast", "--json").json

    assert (fast["kind"], fast["resting"], fast["tries"], fast["bans"], fast["bytes"], fast["cost"]) == (
        "datacenter", 1, 9, 1, 7000, 3.5,
    )  # fmt: skip
    first = fast["proxies"][0]
    assert (first["proxy"], first["state"], first["successes"], first["strikes"]) == (
        "http://a.example:80", "resting", 3, 1,
    )  # fmt: skip
    assert first["resting_until"] is not None
    assert first["latency"] == pytest.approx(0.2)


def test_a_pool_whose_source_is_gone_is_told_and_the_others_are_shown(project):
    project.write("gossamer.toml", TOML + '\n[proxies.lost]\nfile = "none.txt"\n')

    said = project.run("proxies")

    assert said.code == 0
    assert "none.txt cannot be read" in said.err
    assert "http://a.example:80" in said.out


def test_an_unknown_pool_is_told_with_those_that_are_there(project):
    project.write("gossamer.toml", TOML)

    for verb in ("show", "check"):
        said = project.run("proxies", verb, "quick")
        assert said.code == 1
        assert "'quick'" in said.err
        assert "fast, home" in said.err


def test_a_reset_ends_rests_of_one_pool_or_of_all(project):
    project.write("gossamer.toml", TOML)
    used(project)

    assert "3 proxies" in project.run("proxies", "reset", "fast").out
    fast, home = project.run("proxies", "--json").json
    assert {one["state"] for one in fast["proxies"]} == {"new"}
    assert home["tries"] == 9
    assert "1 proxy " in project.run("proxies", "reset").out
    assert project.run("proxies", "reset", "quick").code == 1


# -- trying them -----------------------------------------------------------------------------------------------------


@pytest.fixture
def proxies():
    """Two that work, one that refuses the password, one that is not there."""
    with ExitStack() as stack:
        web = stack.enter_context(http_proxy(users={"ann": PASSWORD}))
        socks = stack.enter_context(socks_proxy(users={"ann": PASSWORD}))
        strict = stack.enter_context(http_proxy(users={"bob": "other"}))
        strict_socks = stack.enter_context(socks_proxy(users={"bob": "other"}))
        nobody = stack.enter_context(socket.socket())
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        yield web, socks, strict, strict_socks, nobody.getsockname()[1]


def pool_of(*urls: str, **terms: str) -> str:
    return f"[proxies.p]\nallow_private = true\nurls = {list(urls)!r}\n".replace("'", '"') + "".join(
        f"{name} = {value}\n" for name, value in terms.items()
    )


def test_a_check_knocks_at_every_proxy_and_goes_nowhere(project, proxies):
    web, socks, strict, strict_socks, closed = proxies
    urls = [
        f"http://ann:{PASSWORD}@127.0.0.1:{web.port}",
        f"socks5://ann:{PASSWORD}@127.0.0.1:{socks.port}",
        f"http://ann:{PASSWORD}@127.0.0.1:{strict.port}",
        f"socks5://ann:{PASSWORD}@127.0.0.1:{strict_socks.port}",
        f"http://ann:{PASSWORD}@127.0.0.1:{closed}",
        f"http://ann:{PASSWORD}@127.0.0.1:{socks.port}",
    ]
    project.write("gossamer.toml", pool_of(*urls))

    said = project.run("proxies", "check", "--json")

    assert said.code == 0
    assert PASSWORD not in said.out + said.err
    found = {one["proxy"]: one for one in said.json}
    works = [found[url.replace(f"ann:{PASSWORD}@", "")]["ok"] for url in urls]
    assert works == [True, True, False, False, False, False]
    words = [found[url.replace(f"ann:{PASSWORD}@", "")]["words"] for url in urls]
    assert "user name or the password" in words[2]
    assert "user name or the password" in words[3]
    assert "no connection" in words[4]
    assert not [one for one in socks.passages if one.username == "ann"]  # it was left before it was asked for a line
    assert "2 of 6 proxies work" in project.run("proxies", "check").err


def test_when_no_proxy_works_the_exit_code_says_so(project, proxies):
    _, _, strict, _, _ = proxies
    project.write("gossamer.toml", pool_of(f"http://ann:{PASSWORD}@127.0.0.1:{strict.port}"))

    said = project.run("proxies", "check")

    assert said.code == 1
    assert "0 of 1 proxy work" in said.err
    assert "no" in said.lines[1].split()


def test_a_check_with_a_url_fetches_it_through_each_proxy(project, proxies):
    web, socks, strict, _, _ = proxies
    urls = [
        f"http://ann:{PASSWORD}@127.0.0.1:{web.port}",
        f"socks5://ann:{PASSWORD}@127.0.0.1:{socks.port}",
        f"http://ann:{PASSWORD}@127.0.0.1:{strict.port}",
    ]
    project.write("gossamer.toml", pool_of(*urls))
    with park(pages=1, hosts=1) as site:
        said = project.run("proxies", "check", "p", "--url", site.url(), "--json")
        visits = len(site.hits())

    assert said.code == 0
    assert [(one["ok"], one["words"][:3]) for one in said.json] == [(True, "200"), (True, "200"), (False, "The")]
    assert len(web.passages) == len(socks.passages) == 1
    assert visits == 2


def test_a_gateway_is_tried_with_a_session_of_its_own(project):
    seen = []

    def admits(username: str, password: str) -> bool:
        seen.append(username)
        return username.startswith("ann-session-") and password == PASSWORD

    with http_proxy(users=admits) as proxy:
        project.write(
            "gossamer.toml",
            f'[proxies.g]\nallow_private = true\ngateway = "http://127.0.0.1:{proxy.port}"\nuser = "ann"\n'
            f'password = "{PASSWORD}"\nusername = "{{user}}-session-{{session}}"\n',
        )
        (one,) = project.run("proxies", "check", "--json").json

    assert one["ok"], one
    assert [name for name in seen if name.startswith("ann-session-")]


def test_a_proxy_at_a_private_address_is_not_dialled_unless_the_pool_allows_it(project, proxies):
    web = proxies[0]
    project.write("gossamer.toml", pool_of(f"http://ann:{PASSWORD}@127.0.0.1:{web.port}").replace("true", "false"))

    said = project.run("proxies", "check", "--json")

    assert said.code == 1
    assert "proxies.p.allow_private" in said.json[0]["words"]
    assert web.connections == 0
