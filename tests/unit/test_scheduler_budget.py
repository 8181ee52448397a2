"""How runs share the budget of a day."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.model.events import ScheduleSkipped
from gossamer.schedule.decisions import budget_of
from gossamer.schedule.runs import share_of
from tests.unit.schedulers import DAY, HOUR, HOURLY
from tests.unit.schedulers import bench as bench


@settings(max_examples=200, deadline=None)
@given(
    per_day=st.integers(1, 10**9),
    start=st.integers(1_700_000_000_000, 1_900_000_000_000),
    steps=st.lists(st.integers(1_000, 86_400_000), min_size=1, max_size=50),
)
def test_the_shares_of_all_runs_add_up_to_the_budget_of_the_time_that_passed(per_day, start, steps):
    moments = [start]
    for step in steps:
        moments.append(moments[-1] + step)

    shares = [
        budget_of(per_day, due=due / 1000, now=due / 1000, since=since / 1000, following=None)
        for since, due in pairwise(moments)
    ]

    passed = (moments[-1] - start) / 86_400_000
    assert all(0 <= share <= per_day for share in shares)
    assert abs(sum(shares) - per_day * passed) <= 1 + per_day * 1e-12


def test_a_first_run_gets_the_share_of_the_time_to_the_next_and_a_late_one_a_day_at_most():
    noon = 20_000 * DAY + DAY / 2

    def share(since, following, late=0.0):
        return budget_of(240, due=noon, now=noon + late, since=since, following=following)

    assert share(None, noon + HOUR) == 10
    assert share(None, noon + 9 * DAY) == 240
    assert share(None, None) == 240
    assert share(noon - 9 * DAY, noon + HOUR) == 240
    assert share(noon + HOUR, noon + HOUR) == 10  # a clock that was ahead


def test_a_tick_that_is_decided_after_a_run_by_hand_has_nothing_left_to_spend():
    noon = 20_000 * DAY + DAY / 2

    assert budget_of(240, due=noon, now=noon + 2 * HOUR, since=noon + HOUR, following=noon + HOUR) == 0


async def test_runs_share_the_budget_of_the_day_and_none_is_begun_for_nothing(bench):
    await bench.add(HOURLY, budget=8)  # one for every third tick
    for _ in range(25):
        await bench.look()
        for job in await bench.running():
            await bench.end(job)
        bench.clock.advance(HOUR)

    spent = [(await bench.system.state.jobs.terms(job.id)).budget for job in await bench.system.state.jobs.jobs()]
    assert set(spent) == {1}
    assert len(spent) in (8, 9)  # a day and an hour
    assert {event.reason for event in bench.ear.heard(ScheduleSkipped)} == {"budget"}


async def test_a_run_after_a_break_gets_the_share_of_the_whole_break(bench):
    await bench.add(HOURLY, budget=240)
    for advance in (0, HOUR, 6 * HOUR):
        await bench.look(advance)
        for job in await bench.running():
            await bench.end(job)

    spent = [(await bench.system.state.jobs.terms(f"prices-{number}")).budget for number in (1, 2, 3)]
    assert spent == [10, 10, 60]


async def test_a_first_run_by_hand_gets_a_usual_share_though_a_tick_is_near(bench):
    await bench.add(HOURLY, budget=240)
    standing = await bench.standing()

    for moment in (bench.began - 0.0004, bench.began + HOUR - 1):
        assert await share_of(bench.system.state.jobs, standing, moment, moment, by_hand=True) == 10
