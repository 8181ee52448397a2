"""Every feature with every other: the product does what the model says, and the site's log agrees.

A story for each row of a table in which all pairs stand, six features to a row: `make test` tells the first of each
part, `make test-long` the others. It also tells the first stories of a table with three to a row, so that less hides
behind something else, stories with several processes and on a fleet, and each feature by the commands of people.
PAIRS=5 tells five times as many of these; `python -m tests.pairs etags kill 7` tells one.
"""

from __future__ import annotations

import os

import pytest

from .cover import Row, check, rows
from .features import FEATURES

CHEAP = [name for name, feature in FEATURES.items() if not feature.is_costly]
PARTS = 12  # so that they are spread over the cores
SHORT = 3  # stories of each part that `make test` tells
TIMES = int(os.environ.get("PAIRS", "1"))


def part(found: list[Row], number: int, most: int | None = None) -> list[Row]:
    return found[number::PARTS][:most]


@pytest.mark.parametrize("number", range(PARTS))
def test_features_in_rows_of_six(number: int) -> None:
    for row in part(rows(CHEAP, 6, seed=0), number)[:SHORT]:
        check(row, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("number", range(PARTS))
def test_the_other_rows_of_six(number: int) -> None:
    for row in part(rows(CHEAP, 6, seed=0), number)[SHORT:]:
        check(row, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("number", range(PARTS))
def test_features_in_rows_of_three(number: int) -> None:
    for row in part(rows(CHEAP, 3, seed=1), number, 6 * TIMES):
        check(row, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("name", FEATURES)
def test_each_feature_by_true_commands(name: str) -> None:
    check((name,), seed=1, by_fork=False)


@pytest.mark.long
@pytest.mark.parametrize("number", range(PARTS))
def test_features_with_several_processes_and_on_the_servers_of_a_fleet(number: int) -> None:
    for row in part(rows(CHEAP, 5, seed=2), number, TIMES):
        for costly in ("processes", "fleet"):
            fitting = tuple(name for name in row if name not in FEATURES[costly].not_with)
            check((*fitting, costly), seed=2)
