"""Pages that were read a moment ago."""

from __future__ import annotations

import pytest

from gossamer.clock import VirtualClock
from gossamer.project.jobs import outcome_cache
from gossamer.project.jobs.outcome_cache import KEPT, OutcomeCache
from gossamer.project.pages.results import PageMeta, PageOutcome


def outcome(text: str) -> PageOutcome:
    meta = PageMeta(job_id="j-1", route=None, latency=None, attempts=1, from_cache=False, fetched_at=None)
    return PageOutcome(
        success=True, id="", url="https://a.example/", status_code=200, data={"markdown": text}, meta=meta,
        tokens_used=0.0, error=None,
    )  # fmt: skip


def test_a_page_is_kept_for_a_while_and_for_its_job_alone() -> None:
    clock = VirtualClock()
    cache = OutcomeCache(clock)
    cache.put(("j-1", b"a"), kept := outcome("one"))
    assert cache.get(("j-1", b"a")) is kept
    assert cache.get(("j-2", b"a")) is None
    assert cache.get(("j-1", b"b")) is None
    clock.advance(KEPT.total_seconds())
    assert cache.get(("j-1", b"a")) is None


def test_the_oldest_go_first_when_there_are_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_cache, "MOST_BYTES", 25_000)
    cache = OutcomeCache(VirtualClock())
    for number in range(10):
        cache.put(("j-1", bytes([number])), outcome("x" * 10_000))
    assert [number for number in range(10) if cache.get(("j-1", bytes([number]))) is not None] == [8, 9]
    monkeypatch.setattr(outcome_cache, "MOST_OF_ONE", 5_000)
    cache.put(("j-1", b"big"), outcome("x" * 10_000))
    assert cache.get(("j-1", b"big")) is None
