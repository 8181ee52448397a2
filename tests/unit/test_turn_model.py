"""The turns of docs/adr/0107 as a small model, with every order of events tried: two workers, one paced site, whole
seconds. Each rule that is left out is shown to be needed.

A worker may do nothing for ever, which is how it dies; its reports arrive at any later moment, twice or never; an
answer takes as long as it likes. Times are relative to now, so the moments are finitely many, however long the story.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

INTERVAL, LEASE, LEASES, WORKERS = 2, 5, 2, (0, 1)


@dataclass(frozen=True)
class Rules:
    """The rules of the design. Without one of them, two requests come too close together."""

    turns_are_held: bool = True  # nobody else is granted a turn while one is owed
    later_requests_ask: bool = True  # a redirect or a repeat of the same page takes a turn of its own
    reports_say_ahead: bool = True  # with the report comes how far ahead the worker's own count is
    reports_name_their_turn: bool = True  # so that a late one says nothing about the next turn of the same page
    lost_turns_cost: bool = True  # a lease that ends with an owed turn keeps an interval from its end


@dataclass(frozen=True, order=True)
class HeldTurn:
    """A lease. `owed`: the backend has noted a turn that no request is known to have used; `sent`: one has used it, as
    only the worker knows. `reports` are on their way: of which turn, and how far ahead."""

    worker: int
    ends: int = LEASE
    owed: bool = True
    sent: bool = False
    second: bool = False  # the turn is that of a later request for the same page
    reports: tuple[tuple[bool, int], ...] = ()


@dataclass(frozen=True)
class Moment:
    next_in: int = 0  # until the site's next turn
    leases: tuple[HeldTurn, ...] = ()
    own_ago: tuple[int, ...] = (INTERVAL, INTERVAL)  # since each worker's last request, as its pacer remembers
    wire_ago: int = INTERVAL  # since the site saw a request
    too_close: bool = False


def moments_after(at: Moment, rules: Rules) -> Iterator[Moment]:
    yield a_second_later(at, rules)
    for worker in WORKERS:
        if len(at.leases) < LEASES and is_free_for(at, worker, rules):
            yield replace(with_lease(at, None, HeldTurn(worker)), next_in=INTERVAL)
    for lease in at.leases:
        ahead = INTERVAL - at.own_ago[lease.worker] if rules.reports_say_ahead else 0
        if lease.owed and not lease.sent:
            if at.own_ago[lease.worker] == INTERVAL:
                yield sent(at, lease)
            continue
        if lease.owed and lease.second not in {second for second, _ in lease.reports}:
            report = (*lease.reports, (lease.second, ahead))
            yield with_lease(at, lease, replace(lease, reports=report))
        if not lease.second and not rules.later_requests_ask and at.own_ago[lease.worker] == INTERVAL:
            yield sent(at, lease, replace(lease, second=True))
        elif not lease.owed and not lease.second and is_free_for(at, lease.worker, rules):
            again = replace(lease, owed=True, sent=False, second=True)
            yield replace(with_lease(at, lease, again), next_in=INTERVAL)
        yield replace(with_lease(at, lease, None), next_in=max(at.next_in, ahead))  # settled
        for number, (second, told) in enumerate(lease.reports):
            owed = lease.owed and second != lease.second and rules.reports_name_their_turn
            for left in (lease.reports, lease.reports[:number] + lease.reports[number + 1 :]):  # it may come twice
                arrived = replace(lease, owed=owed, reports=left)
                yield replace(with_lease(at, lease, arrived), next_in=max(at.next_in, told))


def is_free_for(at: Moment, worker: int, rules: Rules) -> bool:
    others = any(one.owed and one.worker != worker for one in at.leases)
    return not at.next_in and not (others and rules.turns_are_held)


def sent(at: Moment, lease: HeldTurn, after: HeldTurn | None = None) -> Moment:
    own = tuple(0 if one == lease.worker else ago for one, ago in enumerate(at.own_ago))
    went = with_lease(at, lease, replace(after or lease, sent=True))
    return replace(went, own_ago=own, wire_ago=0, too_close=at.wire_ago < INTERVAL)


def with_lease(at: Moment, before: HeldTurn | None, after: HeldTurn | None) -> Moment:
    left = list(at.leases)
    if before is not None:
        left.remove(before)
    return replace(at, leases=tuple(sorted([*left, after] if after is not None else left)))


def a_second_later(at: Moment, rules: Rules) -> Moment:
    """Leases that end now are taken back: their workers send nothing any more, and may just have done so."""
    ended = [one for one in at.leases if one.ends == 1]
    lost = any(one.owed for one in ended) and rules.lost_turns_cost
    return replace(
        at,
        next_in=INTERVAL if lost else max(0, at.next_in - 1),
        leases=tuple(replace(one, ends=one.ends - 1) for one in at.leases if one.ends > 1),
        own_ago=tuple(min(INTERVAL, ago + 1) for ago in at.own_ago),
        wire_ago=min(INTERVAL, at.wire_ago + 1),
    )


def explored(rules: Rules) -> tuple[set[Moment], Moment | None]:
    """The moments that can be reached, and one in which two requests came too close together."""
    seen = {Moment()}
    ahead = list(seen)
    while ahead:
        for moment in moments_after(ahead.pop(), rules):
            if moment.too_close:
                return seen, moment
            if moment not in seen:
                seen.add(moment)
                ahead.append(moment)
    return seen, None


def test_no_order_of_events_brings_two_requests_too_close_together() -> None:
    reached, too_close = explored(Rules())

    assert too_close is None
    assert any(lease.second and lease.sent for one in reached for lease in one.leases)
    assert any({lease.worker for lease in one.leases} == {*WORKERS} for one in reached)


@pytest.mark.parametrize("rule", Rules.__dataclass_fields__)
def test_every_rule_is_needed(rule: str) -> None:
    _, too_close = explored(replace(Rules(), **{rule: False}))

    assert too_close is not None


def test_a_page_that_never_answers_holds_up_nobody_once_its_request_has_left() -> None:
    rules, turn = Rules(), HeldTurn(0)
    at = sent(Moment(next_in=INTERVAL, leases=(turn,)), turn)
    for _ in range(INTERVAL):
        assert not is_free_for(at, 1, rules)  # its turn is owed: perhaps nothing has left
        at = a_second_later(at, rules)
    assert not is_free_for(at, 1, rules)

    (slow,) = at.leases
    reported = with_lease(at, slow, replace(slow, owed=False))

    assert is_free_for(reported, 1, rules)
    assert reported.leases  # and the page itself goes on
