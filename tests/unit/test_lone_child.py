"""What a watched command's exit code means to the process that watches it."""

from __future__ import annotations

from gossamer.model.outcome import EXIT_CODES
from gossamer.process.supervisor import RESTARTED


def test_no_outcome_of_a_crawl_is_taken_for_a_request_to_start_again() -> None:
    assert RESTARTED not in (*EXIT_CODES.values(), 130)
