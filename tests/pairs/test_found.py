"""Stories that found a defect, each the shortest one."""

from __future__ import annotations

import pytest

from .cover import check


@pytest.mark.parametrize(
    ("features", "seed"),
    [
        # A spider with a start() of its own did not get the sitemaps it had asked for.
        (("sitemap", "form"), 1),
        # A scheduled run whose only due page redirects to a fresh one was called failed, "which is another site".
        (("moved", "min-age"), 10),
        # A dead letter that was parsed again changed a record that store.min_rewrite_age protected.
        (("rewrite-age", "mended-code"), 11),
    ],
)
def test_what_was_found_stays_mended(features: tuple[str, ...], seed: int) -> None:
    check(features, seed)
