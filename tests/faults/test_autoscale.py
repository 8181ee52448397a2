"""A day under `gossamer up --autoscale`, in a minute. `python -m bench.autoscale` is the same at full size."""

from __future__ import annotations

import pytest

from tests.faults.autoscale import Plan, a_day

pytestmark = pytest.mark.long


@pytest.mark.timeout(1200)  # a whole story: minutes of work where cores are rare
def test_a_day_of_few_and_many_sites(tmp_path):
    day = a_day(tmp_path, Plan(domains=40, pages=12, huge=60))

    # at night there is nobody, one huge slow site needs one, many polite sites need more
    assert day.most("night") == 0
    assert day.most("one huge slow site") == 1
    assert day.most("many polite sites") > 1
    assert day.moments[-1].workers == 0
    # the number rose to its peak and fell again, once
    assert day.turns == 1, day.changes
    # nothing was lost or asked for twice by those who came and went, and no site was visited faster than it allows
    assert (day.lost, day.repeated, day.early, day.records_differ) == (0, 0, 0, 0)
