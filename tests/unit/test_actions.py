"""How often an action of a rendered page is done at most."""

from __future__ import annotations

import pytest

from gossamer.model.route import MOST_UNTIL, Action


@pytest.mark.parametrize(
    ("action", "most"),
    [
        (Action(do="click", selector="a.more"), 1),
        (Action(do="click", selector="a.more", times=7), 7),
        (Action(do="click", selector="a.more", until="gone"), MOST_UNTIL),
        (Action(do="click", selector="a.more", until="gone", times=7), 7),
        (Action(do="collect", selector="a"), MOST_UNTIL),
        (Action(do="collect", selector="a", times=7), 7),
    ],
)
def test_what_goes_on_until_something_happens_has_a_bound_that_the_spider_may_set(action: Action, most: int) -> None:
    assert action.most == most
