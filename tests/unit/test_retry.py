"""Decisions about failures are pure: the same failure, the same answer."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import (
    AddressRefused,
    ClientError,
    ConnectFailed,
    ParseFailed,
    RateLimited,
    ServerFailed,
    TimedOut,
)
from gossamer.frontier.retry import GiveUp, RetryTerms, TryAgain, decide, failure_of

TERMS = RetryTerms()


def answer(failure, attempt=1, max_attempts=4, jitter=0.999999):
    return decide(failure, attempt=attempt, max_attempts=max_attempts, terms=TERMS, jitter=jitter)


@pytest.mark.parametrize("failure", [ConnectFailed("x"), TimedOut("x"), ServerFailed("x", status=500)])
def test_delays_double_up_to_a_minute(failure):
    delays = [answer(failure, attempt, max_attempts=99).delay.total_seconds() for attempt in range(1, 10)]
    assert [round(delay) for delay in delays] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_too_many_requests_may_wait_five_minutes_and_rest_the_site():
    decision = answer(RateLimited("x", status=429), attempt=20, max_attempts=99)
    assert round(decision.delay.total_seconds()) == 300
    assert decision.rest == decision.delay


@pytest.mark.parametrize(
    ("wish", "rest"),
    [(timedelta(seconds=7), 7), (timedelta(days=4000), 300), (timedelta(seconds=-5), 0), (timedelta(0), 0)],
)
def test_retry_after_is_honoured_within_reason(wish, rest):
    decision = answer(RateLimited("x", status=429, retry_after=wish))
    assert decision.rest.total_seconds() == rest
    assert decision.delay.total_seconds() >= rest


@pytest.mark.parametrize("failure", [ClientError("x", status=404), AddressRefused("x"), ParseFailed("x")])
def test_what_will_not_change_is_not_tried_again(failure):
    assert isinstance(answer(failure), GiveUp)


def test_the_last_attempt_ends_with_the_dead_under_its_reason():
    assert answer(TimedOut("x"), attempt=4) == GiveUp("timeout")
    assert answer(ServerFailed("x", status=502), attempt=4) == GiveUp("http-502")
    assert answer(ClientError("x", status=410)) == GiveUp("http-410")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(200, None), (204, None), (404, ClientError), (418, ClientError), (500, ServerFailed), (503, ServerFailed),
     (429, RateLimited), (408, ServerFailed), (501, ClientError), (304, ClientError)],
)  # fmt: skip
def test_statuses_are_judged_by_the_rules(status, kind):
    failure = failure_of(status, TERMS, None, "https://a.test/")
    assert failure is None if kind is None else isinstance(failure, kind)


def test_a_503_that_names_a_time_counts_as_a_request_for_space():
    assert isinstance(failure_of(503, TERMS, timedelta(seconds=3), "u"), RateLimited)


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_delay_is_never_negative_nor_beyond_its_cap(attempt, jitter):
    decision = decide(TimedOut("x"), attempt=attempt, max_attempts=10**6, terms=TERMS, jitter=jitter)
    assert isinstance(decision, TryAgain)
    assert timedelta(0) < decision.delay <= TERMS.cap
