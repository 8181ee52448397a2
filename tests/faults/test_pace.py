"""No two requests reach a site closer together than its rate allows. `python -m bench.pace` is the long version."""

from __future__ import annotations

import random

import pytest

from tests.faults.pace import ROWS, measure

pytestmark = pytest.mark.long

GAPS = 60
TRIED = ("https", "https, CONNECT proxy", "profile, HTTP/2", "https, dropped")


@pytest.mark.parametrize("name", TRIED)
def test_no_gap_is_shorter_than_the_interval(tmp_path, name):
    row = next(row for row in ROWS if row.name == name)
    paced = measure(row, tmp_path, GAPS, random.Random(1))
    assert paced.gaps >= GAPS
    assert (paced.short, paced.missing) == ((), 0)
