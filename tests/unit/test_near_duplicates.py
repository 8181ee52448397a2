"""Near-duplicates: texts that say nearly the same, and texts that say too little to be compared that way."""

from __future__ import annotations

import pytest

from gossamer import Drop, NearDuplicates

STORY = "The very same long story about one thing that is told again on a hundred pages of the same small shop "


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("★★★★★", "!!!", False),
        ("★★★★★", "★★★★★", True),
        ("No description.", "no description", False),
        ("No description.", "No description.", True),
        ("seven words are too few to judge", "seven words are too few to judge!", False),
        (STORY * 3, (STORY * 3).upper(), True),
        (STORY * 3, "Something else that nobody has told before about a thing that is not on sale here", False),
    ],
)
def test_two_texts(one, other, same):
    step = NearDuplicates("text")

    assert step({"url": "1", "text": one}, None) == {"url": "1", "text": one}
    assert isinstance(step({"url": "2", "text": other}, None), Drop) is same
