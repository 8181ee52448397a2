"""What a job was worth: facts in, one of six outcomes with its reasons out."""

from __future__ import annotations

from typing import Any

import pytest

from gossamer import Item, Page, Spider
from gossamer.model.outcome import (
    EXIT_CODES,
    Expectations,
    JobFacts,
    LastRun,
    Outcome,
    Reason,
    implied,
    outcome_of,
    settled_again,
)
from gossamer.model.run_records import RunRecords
from gossamer.parse.spider import declares_items

FINE: dict[str, Any] = {"ending": "done", "pages": 100, "records": 90, "gives_records": True}


@pytest.mark.parametrize(
    ("facts", "outcome", "codes"),
    [
        ({}, "done", []),
        ({"dead": {"http-404": 3, "http-410": 1}}, "done", []),  # every site links to pages that do not exist
        ({"dead": {"timeout": 2}}, "done with warnings", ["dead-letters"]),
        ({"dead": {"timeout": 2}, "expected": {"max_dead_share": 0.05}}, "done", []),
        ({"dead": {"http-404": 50}, "expected": {"max_dead_share": 0.05}}, "done with warnings", ["dead-letters"]),
        ({"expected": {"min_records": 91, "min_pages": 101}}, "done with warnings", ["min-records", "min-pages"]),
        ({"expected": {"min_records": 90, "min_pages": 100}}, "done", []),
        ({"last": LastRun("books-1", 200), "expected": {"max_change": 0.5}}, "done with warnings", ["max-change"]),
        ({"last": LastRun("books-1", 40), "expected": {"max_change": 0.5}}, "done with warnings", ["max-change"]),
        ({"last": LastRun("books-1", 100), "expected": {"max_change": 0.1}}, "done", []),
        ({"doubt": "saw 9 where 90 were"}, "done with warnings", ["fewer-records"]),
        ({"lost": 2, "trouble": "no such file"}, "done with warnings", ["lost-results", "source"]),
        ({"records": 0}, "empty", ["no-records", "nothing-found"]),
        ({"records": 0, "items": "9 yielded = 9 faulty"}, "empty", ["no-records", "not-stored"]),
        (
            {"records": 0, "dead": {"blocked-login": 5, "blocked-captcha": 2, "http-403": 1, "parse": 1}},
            "empty",
            ["no-records", "logged-out", "blocked", "not-understood", "nothing-found", "dead-letters"],
        ),
        ({"records": 0, "gives_records": False}, "done", []),  # a spider that archives pages, say
        ({"records": 0, "gives_records": False, "expected": {"min_records": 1}}, "empty", ["no-records"]),
        ({"records": 0, "expected": {"min_records": 0}}, "done", []),
        ({"records": 0, "pages": 0}, "done", []),  # nothing was due
        ({"dead": {"quality": 7}}, "held back", ["quality"]),
        ({"ending": "limit", "limit": 100}, "done", ["limit"]),
        ({"ending": "limit", "limit": 100, "dead": {"timeout": 1}}, "done with warnings", ["dead-letters", "limit"]),
        ({"ending": "limit", "limit": 100, "stopped": "enough"}, "incomplete", ["stopped"]),
        ({"ending": "limit"}, "incomplete", ["limit"]),  # the budget of a schedule
        (
            {"ending": "limit", "limit": 9, "last": LastRun("books-1", 200), "expected": {"max_change": 0.5}},
            "done",
            ["limit"],
        ),
        ({"cut": (Reason("pattern-limit", "5 links"),)}, "incomplete", ["pattern-limit"]),
        ({"guessed": (Reason("trap", "5 links"),)}, "done with warnings", ["trap"]),
        ({"dead": {"budget": 4}}, "incomplete", ["budget"]),
        ({"ending": "limit", "limit": 3, "dead": {"quality": 1}}, "held back", ["quality", "limit"]),
        ({"pages": 0, "records": 0, "dead": {"dns": 1}, "failure": "no such host"}, "failed", ["nothing-came"]),
        ({"pages": 0, "records": 0, "dead": {"quality": 9}, "failure": "held back"}, "held back", ["quality"]),
        ({"pages": 0, "records": 0, "dead": {"budget": 9}, "failure": "no credits"}, "incomplete", ["budget"]),
        ({"ending": "source failed: no file"}, "failed", ["source-failed"]),
    ],
)  # fmt: skip
def test_the_worst_that_is_found_gives_the_word_and_all_of_it_is_told(facts, outcome, codes):
    expected = Expectations(**facts.get("expected", {}))
    found = outcome_of(JobFacts(**{**FINE, **facts, "expected": expected}))
    assert (found.outcome.value, [reason.code for reason in found.reasons][: len(codes) or None]) == (outcome, codes)
    assert all(reason.message for reason in found.reasons)


def test_dead_links_are_told_apart_from_pages_that_failed():
    found = outcome_of(JobFacts(**{**FINE, "dead": {"http-404": 5, "http-410": 1, "parse": 1}}))
    assert found.reasons[0].message == "1 of 107 pages ended as dead letters (1 parse), beside 6 dead links"


def test_all_dead_letters_are_accounted_for_where_not_all_reasons_are_named():
    dead = {"http-500": 4, "timeout": 3, "parse": 2, "dns": 1, "http-503": 1}
    found = outcome_of(JobFacts(**{**FINE, "pages": 9, "dead": dead}))
    assert found.reasons[0].message == (
        "11 of 20 pages ended as dead letters (4 http-500, 3 timeout, 2 parse, 2 for other reasons)"
    )


def test_some_endings_tell_the_outcome_alone():
    for ending in ("cancelled", "replaced", "limit"):
        told = implied(ending)
        assert told is not None
        assert (told.outcome, told.reasons[0].code) == (Outcome.INCOMPLETE, ending)
    assert implied("source failed: no such file").in_words == "failed: no such file"
    assert implied("done") is None


def test_every_outcome_has_an_exit_code_of_its_own_and_only_done_has_zero():
    assert len(set(EXIT_CODES.values())) == len(Outcome)
    assert [outcome for outcome, code in EXIT_CODES.items() if code == 0] == [Outcome.DONE]
    assert 2 not in EXIT_CODES.values()  # a command that cannot be understood


@pytest.mark.parametrize(
    "bad",
    [{"min_records": -1}, {"max_dead_share": 1.5}, {"max_change": "half"}, {"min_pages": 0.5}, {"min_pages": True}],
)
def test_what_nobody_can_expect_is_told(bad):
    assert next(iter(bad)) in Expectations(**bad).fault()


class Thing(Item):
    name: str


class Naming(Spider):
    def parse(self, page: Page):
        yield from (Thing(url=page.url, name=text) for text in page.css("h1::text").getall())


class Following(Spider):
    def parse(self, page: Page):
        yield from page.follow_all("a")


def test_a_spider_that_names_a_class_of_items_declares_items():
    assert declares_items(Naming())
    assert not declares_items(Following())


@pytest.mark.parametrize(
    ("records", "outcome", "codes"),
    [
        (RunRecords(unchanged=40, unseen=0), "done", []),
        (RunRecords(unchanged=39, unseen=1), "done with warnings", ["fewer-records"]),
        (RunRecords(new=40, unseen=40), "done with warnings", ["fewer-records"]),  # other keys than before
        (None, "done with warnings", ["fewer-records"]),  # nobody counted
    ],
)
def test_a_run_that_has_seen_all_records_since_is_in_doubt_no_more(records, outcome, codes):
    before = outcome_of(JobFacts(**FINE | {"records": 0, "dead": {"parse": 40}, "doubt": "saw 0 where 40 were"}))
    assert before.outcome is Outcome.EMPTY

    now = settled_again(before, JobFacts(**FINE), records, 9.0, "parsed again")

    assert (now.outcome.value, [one.code for one in now.reasons], now.first) == (outcome, codes, Outcome.EMPTY)
    assert now.records == records


def test_results_that_were_given_up_stay_a_warning_whatever_is_seen_later():
    before = outcome_of(JobFacts(**FINE | {"lost": 2}))
    now = settled_again(before, JobFacts(**FINE), RunRecords(unchanged=90, unseen=0), 9.0, "purged")
    assert [one.code for one in now.reasons] == ["lost-results"]


@pytest.mark.parametrize("facts", [{"failure": "https://shop.example/ answered 403"}, {"lost": 1}])
def test_a_run_whose_pages_came_in_another_run_is_not_called_empty(facts):
    before = outcome_of(
        JobFacts(**FINE | {"pages": 0, "records": 0, "dead": {"http-403": 1}, "gives_records": False} | facts)
    )

    now = settled_again(before, JobFacts(**FINE | {"pages": 1, "records": 0}), None, 9.0, "fetched by books-2")

    assert (now.outcome, now.reasons) == (before.outcome, before.reasons)
