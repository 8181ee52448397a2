"""What every book of sessions promises: one cookie at a time, one login at a time, for all workers."""

from __future__ import annotations

import asyncio

import pytest

from gossamer.fetch import sessions as rules
from gossamer.fetch.sessions import (
    begin_login,
    end_login,
    fail_login,
    forget_login,
    let_in,
    log_out,
    merge,
    note_block,
    renew_login,
    touch,
)
from gossamer.model.session import Cookie

from .frontiers import Backends

NAME = "books/member"


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as opened:
        yield opened


def cookie(name: str, value: str = "1", **more: object) -> Cookie:
    return Cookie(name, value, "a.example", "/", **{"host_only": True, "secure": False, "expires": None, **more})


def setting(*cookies: Cookie, **era: int):
    return merge({one.key: one for one in cookies}, **era)


def alive(worker: str) -> bool:
    return False


def login(worker: str = "w1", seconds: float = 30.0, is_gone=alive):
    return begin_login(worker, f"{worker}'s", seconds, is_gone)


async def logged_in(lab, name: str = NAME):
    taken = await lab.sessions.change(name, login())
    return await lab.sessions.change(name, end_login(taken.lock.token, {}, {}, ()))


async def test_cookies_of_many_workers_are_merged_one_by_one(lab):
    names = [f"c{number}" for number in range(20)]
    await asyncio.gather(*(lab.sessions.change(NAME, setting(cookie(name))) for name in names))
    await lab.sessions.change(NAME, merge({cookie("c3").key: None}))
    await lab.sessions.change(NAME, setting(cookie("c4", "2", secure=True, http_only=True, same_site="Lax")))

    async with lab.again() as other:
        found = {one.name: one for one in (await other.sessions.session(NAME)).cookies}
    assert found.keys() == {*names} - {"c3"}
    assert found["c4"] == cookie("c4", "2", secure=True, http_only=True, same_site="Lax")
    assert (await lab.sessions.session(NAME)).revision == 22


async def test_an_unknown_session_is_none_and_a_change_of_nothing_makes_none(lab):
    assert await lab.sessions.session(NAME) is None
    await lab.sessions.change(NAME, merge({}))
    await lab.sessions.change(NAME, renew_login(1, 5))
    assert await lab.sessions.sessions() == []


async def test_a_session_is_bounded(lab, monkeypatch):
    monkeypatch.setattr(rules, "MOST_COOKIES", 5)
    await lab.sessions.change(NAME, setting(*(cookie(f"c{number}") for number in range(20))))
    assert [one.name for one in (await lab.sessions.session(NAME)).cookies] == [
        f"c{number}" for number in range(15, 20)
    ]
    await lab.sessions.change(NAME, setting(*(cookie(f"d{number}", "x" * 100_000) for number in range(5))))
    assert [one.name for one in (await lab.sessions.session(NAME)).cookies] == ["d3", "d4"]


async def test_expired_cookies_go_with_the_next_change(lab):
    await lab.sessions.change(NAME, setting(cookie("short", expires=lab.clock.now() + 5), cookie("long")))
    lab.clock.advance(6)
    await lab.sessions.change(NAME, setting(cookie("new")))
    assert [one.name for one in (await lab.sessions.session(NAME)).cookies] == ["long", "new"]


async def test_what_an_older_login_or_generation_was_given_does_not_count(lab):
    await lab.sessions.change(NAME, setting(cookie("a")))
    await logged_in(lab)
    for era in ({}, {"generation": 2, "logins": 1}):
        assert len((await lab.sessions.change(NAME, setting(cookie("late"), **era))).cookies) == 1
    assert len((await lab.sessions.change(NAME, setting(cookie("b"), logins=1))).cookies) == 2


async def test_one_of_many_gets_the_lock(lab):
    async def knock(number: int) -> str:
        return (await lab.sessions.change(NAME, login(f"w{number}"))).lock.holder

    assert len(set(await asyncio.gather(*map(knock, range(10))))) == 1


async def test_a_lock_lapses_and_what_its_holder_does_afterwards_changes_nothing(lab):
    first = (await lab.sessions.change(NAME, login("w1"))).lock
    lab.clock.advance(31)
    second = (await lab.sessions.change(NAME, login("w2"))).lock
    assert second.token > first.token

    stale = [
        end_login(first.token, {cookie("stale").key: cookie("stale")}, {}, ()),
        fail_login(first.token, "late"),
        renew_login(first.token, 60),
    ]
    for change in stale:
        assert (await lab.sessions.change(NAME, change)).lock == second
    found = await lab.sessions.change(
        NAME, end_login(second.token, {cookie("good").key: cookie("good")}, {"X-Token": "t"}, ["a.example"])
    )
    assert (found.logged_in, found.logins, [one.name for one in found.cookies]) == (True, 1, ["good"])
    assert (found.headers, found.header_sites) == ({"X-Token": "t"}, ("a.example",))


async def test_a_renewed_lock_holds_and_that_of_a_dead_worker_does_not(lab):
    first = (await lab.sessions.change(NAME, login("w1"))).lock
    lab.clock.advance(20)
    await lab.sessions.change(NAME, renew_login(first.token, 30))
    lab.clock.advance(20)
    assert (await lab.sessions.change(NAME, login("w2"))).lock.worker == "w1"
    assert (await lab.sessions.change(NAME, login("w2", is_gone=lambda worker: worker == "w1"))).lock.worker == "w2"


async def test_the_next_login_waits_the_longer_the_more_have_failed(lab):
    for pause in (5, 10, 20):
        taken = await lab.sessions.change(NAME, login())
        failed = await lab.sessions.change(NAME, fail_login(taken.lock.token, "no such user"))
        assert failed.retry_at == lab.clock.now() + pause
        assert (await lab.sessions.change(NAME, login())).lock is None
        lab.clock.advance(pause)
    assert (failed.failures, failed.error) == (3, "no such user")
    assert (await lab.sessions.change(NAME, forget_login)).failures == 0


async def test_pages_that_find_out_together_log_out_once(lab):
    first = await logged_in(lab)
    await lab.sessions.change(NAME, let_in(first.logins, "p0"))
    for page in ("p1", "p2"):
        out = await lab.sessions.change(NAME, log_out(1, page))
        assert (out.logged_in, out.failures, out.turned_away[page]) == (False, 0, 1)
    again = await logged_in(lab)

    late = await lab.sessions.change(NAME, log_out(1, "p3"))  # it was fetched under the first login
    assert (late, late.logged_in, late.turned_away) == (again, True, {"p1": 1, "p2": 1})
    assert (await lab.sessions.change(NAME, let_in(2, "p1"))).turned_away == {"p2": 1}
    assert (await lab.sessions.change(NAME, log_out(2, "p2"))).turned_away == {"p2": 2}


async def test_a_login_that_lets_no_page_in_counts_as_failed(lab):
    for failures in (1, 2):
        found = await logged_in(lab)
        found = await lab.sessions.change(NAME, log_out(found.logins, "p1"))
        assert (found.failures, found.retry_at > lab.clock.now()) == (failures, True)
        lab.clock.advance(60)
    found = await logged_in(lab)
    assert (await lab.sessions.change(NAME, let_in(found.logins, "p1"))).failures == 0


async def test_a_blocked_session_is_retired_once(lab):
    await lab.sessions.change(NAME, setting(cookie("a")))
    for _ in range(2):
        assert (await lab.sessions.change(NAME, note_block(1, for_sure=False))).generation == 1
    retired = await lab.sessions.change(NAME, note_block(1, for_sure=False))
    assert (retired.generation, retired.cookies, retired.blocks) == (2, (), 0)
    assert (await lab.sessions.change(NAME, note_block(1, for_sure=True))).generation == 2
    assert (await lab.sessions.change(NAME, note_block(2, for_sure=True))).generation == 3


async def test_sessions_that_nobody_uses_are_forgotten(lab, monkeypatch):
    for name in ("b/1", "a/1", "c/1"):
        await lab.sessions.change(name, touch)
        lab.clock.advance(10)
    assert [one.name for one in await lab.sessions.sessions()] == ["a/1", "b/1", "c/1"]
    assert await lab.sessions.forget_unused(lab.clock.now() - 25) == 1
    assert await lab.sessions.forget(["a/1", "x/1"]) == 1
    assert [one.name for one in await lab.sessions.sessions()] == ["c/1"]
    monkeypatch.setattr("gossamer.fetch.sessions.MOST_SESSIONS", 3)
    for name in ("d/1", "e/1", "f/1"):
        lab.clock.advance(1)
        await lab.sessions.change(name, touch)
    assert [one.name for one in await lab.sessions.sessions()] == ["d/1", "e/1", "f/1"]
