"""What the HTTP API asks of the state: keys, answers that are given again, the audit log."""

from __future__ import annotations

import asyncio

import pytest

from gossamer.access import contract
from gossamer.access.contract import ApiKey, AuditLine, StoredAnswer

from .frontiers import Backends

NOW = 1_800_000_000.0


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as opened:
        yield opened


def key(id: str, **fields: object) -> ApiKey:
    usual = {"name": "laptop", "digest": "ab" * 32, "scopes": ("scrape", "jobs"), "created_at": NOW}
    return ApiKey(id=id, **{**usual, **fields})


def line(action: str, **fields: object) -> AuditLine:
    return AuditLine(**{"at": NOW, "key": "k", "name": "laptop", "action": action, "status": 200, **fields})


async def test_a_key_comes_back_as_it_was_entered(lab):
    entered = key("a", expires_at=NOW + 5, rate=2.5, open_jobs=7)
    assert await lab.keys.add(entered)

    assert await lab.keys.key("a") == entered
    async with lab.again() as elsewhere:
        assert await elsewhere.keys.keys() == [entered]


async def test_an_id_is_given_once(lab):
    assert await lab.keys.add(key("a"))
    assert not await lab.keys.add(key("a", name="thief", scopes=("admin",)))

    assert await lab.keys.keys() == [key("a")]


async def test_keys_are_listed_oldest_first(lab):
    for id, created_at in (("b", NOW), ("c", NOW - 1), ("a", NOW)):
        await lab.keys.add(key(id, created_at=created_at))

    assert [one.id for one in await lab.keys.keys()] == ["c", "a", "b"]


async def test_a_key_is_revoked_once_and_stays_so_when_it_is_used(lab):
    await lab.keys.add(key("a"))
    assert await lab.keys.revoke("a", NOW + 1)
    assert not await lab.keys.revoke("a", NOW + 2)
    assert not await lab.keys.revoke("unknown", NOW)
    await lab.keys.note_use("a", NOW + 3)

    assert await lab.keys.key("a") == key("a", revoked_at=NOW + 1, used_at=NOW + 3)


async def test_an_unknown_key_is_none(lab):
    assert await lab.keys.key("a") is None
    assert await lab.keys.keys() == []


async def test_of_many_that_claim_an_answer_one_works_it_out(lab):
    claims = await asyncio.gather(*(lab.answers.claim("k:1", "digest", 60) for _ in range(10)))

    assert sorted(claims, key=lambda one: one is not None)[0] is None
    assert [one for one in claims if one is not None] == [StoredAnswer(digest="digest")] * 9


async def test_an_answer_is_given_again_until_its_time_is_over(lab):
    answer = StoredAnswer(digest="digest", status=202, body=b'{"job":"a-1"}\x00\xff')
    assert await lab.answers.claim("k:1", "digest", 60) is None
    await lab.answers.keep("k:1", answer, 3600)

    lab.clock.advance(3599)
    assert await lab.answers.answer("k:1") == answer
    assert await lab.answers.answer("k:2") is None
    assert await lab.answers.claim("k:1", "another", 60) == answer
    assert await lab.answers.claim("k:2", "digest", 60) is None
    lab.clock.advance(2)
    assert await lab.answers.answer("k:1") is None
    assert await lab.answers.claim("k:1", "another", 60) is None
    assert await lab.answers.claim("k:1", "third", 60) == StoredAnswer(digest="another")


async def test_a_claim_is_free_again_when_it_is_released_or_its_server_died(lab):
    await lab.answers.claim("k:1", "a", 60)
    await lab.answers.release("k:1")
    assert await lab.answers.claim("k:1", "b", 60) is None

    lab.clock.advance(61)
    assert await lab.answers.claim("k:1", "c", 60) is None


async def test_the_audit_log_has_the_newest_first_and_tells_keys_apart(lab):
    lines = [line("POST /api/v1/batch", key=key, target=f"job-{n}", at=NOW + n) for n, key in enumerate("kxk")]
    for one in lines:
        await lab.audit.note(one)

    assert await lab.audit.lines(10) == lines[::-1]
    assert await lab.audit.lines(10, key="k") == [lines[2], lines[0]]
    assert await lab.audit.lines(1) == [lines[2]]


async def test_the_audit_log_is_bounded(lab, monkeypatch):
    monkeypatch.setattr(contract, "LINES_KEPT", 3)
    monkeypatch.setattr(contract, "TRIMMED", 1)
    lines = [line(f"DELETE /api/v1/jobs/{n}", at=NOW + n) for n in range(5)]
    for one in lines:
        await lab.audit.note(one)

    assert await lab.audit.lines(10) == lines[:1:-1]
