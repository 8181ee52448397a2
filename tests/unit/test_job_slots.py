"""Which job has a slot, which is next, which makes way, and how many pages each may have in flight."""

from __future__ import annotations

import pytest

from gossamer.project.jobs import slots as job_slots
from gossamer.project.jobs.slots import (
    FILES_OF_A_JOB,
    FILES_OF_A_PROCESS,
    USUAL_TERMS,
    SlotHolder,
    WaitingJob,
    has_room,
    in_order,
    makes_way,
    shares,
    wanted,
)

TURN_S, IDLE_S = USUAL_TERMS.turn.total_seconds(), USUAL_TERMS.idle.total_seconds()


LINE = [WaitingJob("next", True, 0.0)]


def holder(job: str, *, idle: float = 0.0, worked: float = 0.0, opening: float = 0.0, priority: int = 0) -> SlotHolder:
    return SlotHolder(job=job, idle=idle, worked=worked, opening=opening, priority=priority)


@pytest.mark.parametrize(
    ("can_work", "taken", "in_flight", "opening", "steady", "expected"),
    [
        (True, 31, 500, 0, 0, True),  # fewer jobs than pages: always
        (False, 31, 0, 0, 0, True),
        (True, 32, 31, 0, 32, True),  # pages in flight are few: more jobs
        (True, 32, 32, 0, 32, False),
        (True, 40, 10, 22, 18, False),  # those that begin will have some
        (True, 32, 4, 0, 16, True),
        (True, 32, 4, 0, 15, False),  # most of them only wait, or have just begun
        (True, 36, 4, 4, 14, True),  # whoever was let in a moment ago does not shut the door
        (False, 32, 0, 0, 32, False),  # not for one that cannot work
        (True, 127, 0, 0, 127, True),
        (True, 128, 0, 0, 128, False),  # four for each page, and no more
    ],
)
def test_there_is_room(can_work: bool, taken: int, in_flight: int, opening: int, steady: int, expected: bool) -> None:
    room = has_room(
        WaitingJob("a", can_work, 0.0),
        concurrency=32,
        files=None,
        taken=taken,
        in_flight=in_flight,
        opening=opening,
        steady=steady,
    )
    assert room is expected


def test_there_are_never_more_jobs_than_files_allow() -> None:
    applicant = WaitingJob("a", True, 0.0)
    files = FILES_OF_A_PROCESS + 5 * FILES_OF_A_JOB
    room = [has_room(applicant, concurrency=32, files=files, taken=n, in_flight=0, opening=0, steady=n) for n in (4, 5)]
    assert room == [True, False]
    # One, whatever they allow.
    assert has_room(applicant, concurrency=32, files=10, taken=0, in_flight=0, opening=0, steady=0)


def test_the_longest_waiting_is_next_and_those_that_cannot_work_are_last() -> None:
    line = [WaitingJob("closed", False, 1.0), WaitingJob("late", True, 9.0), WaitingJob("early", True, 2.0)]
    assert [one.job for one in in_order(line)] == ["early", "late", "closed"]


def test_nobody_makes_way_for_a_job_that_cannot_work_or_failed_a_moment_ago() -> None:
    line = [WaitingJob("closed", False, 1.0), WaitingJob("failed", True, 300.0), WaitingJob("good", True, 2.0)]
    assert wanted(line, now=10.0) == 1
    assert wanted(line, now=300.0) == 2


def test_the_idle_make_way_first_then_those_that_had_their_turn() -> None:
    places = [
        holder("new", worked=TURN_S - 0.1),
        holder("long", worked=TURN_S + 5),
        holder("longer", worked=TURN_S + 50),
        holder("pausing", idle=IDLE_S - 0.1, worked=TURN_S - 0.1),
        holder("idle", idle=IDLE_S + 1, worked=3.0),
        holder("idler", idle=IDLE_S + 9, worked=11.0),
    ]
    assert makes_way(places, LINE) == ["idler", "idle", "longer", "long"]


def test_a_job_that_took_long_to_begin_has_a_turn_as_long() -> None:
    assert makes_way([holder("reader", worked=TURN_S + 5, opening=TURN_S + 6)], LINE) == []
    assert makes_way([holder("reader", worked=TURN_S + 6, opening=TURN_S + 6)], LINE) == ["reader"]


@pytest.mark.parametrize(
    ("idle", "expected"),
    [
        ([], []),
        ([False], [32]),
        ([False, False, False], [11, 11, 10]),
        ([True, True, False, True], [1, 1, 32, 1]),
        ([True, False, True, False], [1, 16, 1, 16]),
        ([True, True], [16, 16]),  # nobody has work: whoever gets some first is not held up
        ([False] * 40, [1] * 40),
    ],
)
def test_concurrency_is_shared_by_those_who_work(idle: list[bool], expected: list[int]) -> None:
    assert shares(32, idle) == expected


def test_more_important_jobs_go_first_and_do_not_make_way_for_lesser_ones() -> None:
    line = [WaitingJob("old", True, 1.0), WaitingJob("urgent", True, 9.0, priority=5), WaitingJob("new", True, 2.0)]
    assert [one.job for one in in_order(line)] == ["urgent", "old", "new"]
    served = [holder("high", worked=TURN_S + 9, priority=3), holder("low", worked=TURN_S, priority=-1)]
    assert makes_way(served, line) == ["low", "high"]
    assert makes_way(served, [WaitingJob("plain", True, 1.0)]) == ["low"]
    assert makes_way(served, []) == []


def test_a_job_of_higher_priority_gets_all_pages_in_flight_but_a_tenth_if_it_can_use_them():
    def shared(*uses):
        return job_slots.shares_by_priority(20, uses)

    high, low = job_slots.SlotUse(priority=9), job_slots.SlotUse(priority=1)
    assert shared(high, low, low) == [18, 1, 1]
    assert shared(low, low) == [10, 10]
    waits = job_slots.SlotUse(priority=9, full=False, in_flight=2)  # for its site, say
    assert shared(waits, low, low) == [3, 9, 8]
    assert shared(job_slots.SlotUse(priority=9, idle=True), low) == [1, 20]
    assert sum(shared(high, job_slots.SlotUse(priority=5), low)) == 20


def test_a_job_that_has_waited_for_ten_turns_is_next_whatever_its_priority():
    turn = job_slots.USUAL_TERMS.turn.total_seconds()
    low, high = job_slots.after_waiting(-5, 10 * turn), job_slots.after_waiting(100, turn)
    assert low > high == 100
