"""The table "What can leave something out" of docs/concepts.md, compared with the code that decides."""

from __future__ import annotations

import pytest

from gossamer.model.left_out import LEFT_OUT, reasons_of
from gossamer.model.outcome import EXIT_CODES, JobFacts, Outcome, outcome_of
from gossamer.model.task import DropReason

from .manual import ROOT, quoted, read, rows_under

DOCS = ROOT / "docs"

# What is no drop, as the facts of a job that has it.
FACTS = {
    "limit": {"ending": "limit", "limit": 50},
    "stopped": {"ending": "limit", "limit": 50, "stopped": "enough"},
    "budget": {"dead": {"budget": 1}},
    "dead-letters": {"dead": {"timeout": 1}},
    "quality": {"dead": {"quality": 1}},
    "lost-results": {"lost": 1},
    "source": {"trouble": "no such file"},
}


def rows() -> dict[str, list[str]]:
    table = rows_under(read(DOCS / "concepts.md"), "what", "why", "outcome", "exit code", "may mark as gone")
    return {quoted(row[0])[0]: row for row in table}


def test_every_way_to_leave_something_out_has_its_row():
    assert rows().keys() == LEFT_OUT.keys() | FACTS.keys()
    assert set(DropReason) <= LEFT_OUT.keys()


@pytest.mark.parametrize("reason", [*LEFT_OUT, *FACTS])
def test_a_way_to_leave_something_out_ends_as_documented(reason):
    _, _, outcome, code, gone = rows()[reason]
    if reason in LEFT_OUT:
        drops = {str(reason): 7}
        ending = reason if reason in ("cancelled", "replaced") else "done"
        facts = {
            "ending": ending,
            "cut": tuple(reasons_of(drops, Outcome.INCOMPLETE)),
            "guessed": tuple(reasons_of(drops, Outcome.WARNINGS)),
        }
        assert gone == ("yes" if LEFT_OUT[reason].proves_gone else "no")
    else:
        facts = {"ending": "done", **FACTS[reason]}
        assert gone == "no"
    found = outcome_of(JobFacts(**{"pages": 100, "records": 90, **facts}))
    assert (found.outcome.value, EXIT_CODES[found.outcome]) == (quoted(outcome)[0], int(code))
    if found.outcome is not Outcome.DONE:
        assert reason in [one.code for one in found.reasons]
