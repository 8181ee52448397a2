"""Which failures another machine tries first, and when they count."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from gossamer.clock import VirtualClock
from gossamer.crawl.second_opinion import GRACE, LOOK, STREAK, SecondOpinion
from gossamer.errors import (
    BackendUnavailable,
    CertificateOutdated,
    ConnectFailed,
    DiskFull,
    DnsFailed,
    GossamerError,
    HostUnroutable,
    TlsFailed,
)
from gossamer.fetch.http_errors import translated
from gossamer.frontier.contract import WorkerCard
from gossamer.model.task import Task
from gossamer.model.url import fingerprint
from tests.patience import LIMITS


class Cards:
    """A book with these cards; `away`: it does not answer."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.cards: list[dict[str, object]] = []
        self.away = False

    async def workers(self) -> list[WorkerCard]:
        if self.away:
            raise BackendUnavailable("away")
        usual = {"pid": 1, "version": "1", "started_at": 0.0, "seen_at": self._clock.now()}
        return [WorkerCard(**{"name": f"{n}", **usual, **card}) for n, card in enumerate(self.cards)]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def book(clock: VirtualClock) -> Cards:
    cards = Cards(clock)
    cards.cards = [{"host": socket.gethostname()}, {"host": "elsewhere", "pace": 3.0}]
    return cards


def page(number: int = 1) -> Task:
    url = f"https://shop.example/{number}"
    return Task(
        id=number, job="a-1", url=url, fingerprint=fingerprint(url), site="shop.example", kind="page", priority=0,
        depth=0, attempt=0, max_attempts=3, created_at=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("failure", "passed"),
    [
        (DnsFailed("x"), True),
        (HostUnroutable("x"), True),
        (CertificateOutdated("x"), True),
        (DiskFull("x"), True),
        (TlsFailed("x"), False),
        (ConnectFailed("x"), False),
    ],
)
async def test_only_failures_that_can_be_the_machines_are_passed_on(book, clock, failure: GossamerError, passed: bool):
    assert await SecondOpinion(book, clock).wants(page(), failure) is passed


@pytest.mark.parametrize(("code", "kind"), [(9, CertificateOutdated), (10, CertificateOutdated), (18, TlsFailed)])
def test_dates_of_certificates_are_told_apart_from_other_faults_of_theirs(code: int, kind: type[GossamerError]):
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code = code
    assert type(translated(error, "https://shop.example/", LIMITS)) is kind
    unroutable = OSError(errno.EHOSTUNREACH, "No route to host")
    assert type(translated(unroutable, "https://shop.example/", LIMITS)) is HostUnroutable


@pytest.mark.parametrize(
    "card",
    [
        {"host": socket.gethostname()},
        {"host": "elsewhere", "seen_at": 0.0},
        {"host": "elsewhere", "state": "clock wrong"},
        {"host": "elsewhere", "state": "draining"},
    ],
)
async def test_without_another_machine_that_can_take_it_a_failure_counts(book, clock, card):
    book.cards = [card]
    assert not await SecondOpinion(book, clock).wants(page(), DnsFailed("x"))


async def test_while_the_state_does_not_answer_a_failure_counts(book, clock):
    book.away = True
    assert not await SecondOpinion(book, clock).wants(page(), DnsFailed("x"))


async def test_a_page_that_comes_back_to_a_machine_that_reaches_other_sites_counts(book, clock):
    opinion = SecondOpinion(book, clock)
    assert await opinion.wants(page(), DnsFailed("x"))
    opinion.succeeded()
    assert not await opinion.wants(page(), DnsFailed("x"))
    assert opinion.rest is None


async def test_a_machine_that_reaches_nothing_while_others_do_passes_all_on_and_leases_rarely(book, clock):
    opinion = SecondOpinion(book, clock)
    rests = []
    for turn in range(6):
        assert all([await opinion.wants(page(number), DnsFailed("x")) for number in range(STREAK + 1)]), turn
        assert opinion.rest is not None
        assert opinion.is_set_aside
        rests.append(opinion.rest.total_seconds())
        clock.advance(rests[-1])
        assert opinion.rest is None
    assert rests == pytest.approx([2, 4, 8, 16, 32, 60])
    opinion.succeeded()
    assert not opinion.is_set_aside
    assert await opinion.wants(page(99), DnsFailed("x"))
    assert opinion.rest is None


async def test_a_site_that_no_machine_reaches_is_given_up_in_the_end(book, clock):
    # given another machine that settles nothing either
    book.cards = [{"host": "elsewhere", "pace": 0.0}]
    opinion = SecondOpinion(book, clock)
    for number in range(STREAK):
        assert await opinion.wants(page(number), DnsFailed("x"))
    clock.advance(max(GRACE, LOOK).total_seconds())
    assert not await opinion.wants(page(0), DnsFailed("x"))
