"""Pauses that grow: from the first to the longest, shortened by chance where many fail together."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice

from gossamer.clock import Backoff

BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=60))


def test_pauses_double_up_to_the_longest():
    seconds = [pause.total_seconds() for pause in islice(BACKOFF.pauses(), 8)]
    assert seconds == [1, 2, 4, 8, 16, 32, 60, 60]
    assert BACKOFF.pause(10_000) == timedelta(seconds=60)


def test_jitter_shortens_a_pause_by_half_at_most():
    assert BACKOFF.pause(3, jitter=0.0) == timedelta(seconds=2)
    assert BACKOFF.pause(3, jitter=0.5) == timedelta(seconds=3)
    assert BACKOFF.pause(3) == timedelta(seconds=4)
