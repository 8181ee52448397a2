"""A site that is away in the middle of a crawl: its own log and the records say what that costs."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from gossamer.frontier.away import QUIET
from tests.faults.crawlers import Project, wait_for
from tests.patience import poll_until
from tests.services.ports import free_port
from tests.sites.running import park

pytestmark = pytest.mark.long

AWAY = 20.0  # seconds


def test_a_site_that_is_away_for_a_while_loses_no_page_and_is_not_pestered(tmp_path):
    # given a crawl of two sites by two processes
    plan = {"port": free_port(), "log": tmp_path / "hits.jsonl", "hosts": 2, "pages": 60, "latency_ms": 20}
    with ExitStack() as stack:
        site = stack.enter_context(park(**plan))
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "10/s"\nconcurrency = 4')
        crawlers = [project.start(), project.start()]
        poll_until(lambda: len(site.hits()) >= 30)

        # when their server is gone for 20 seconds
        stack.close()
        time.sleep(AWAY)
        site = stack.enter_context(park(**plan))
        for crawler in crawlers:
            wait_for(crawler)

        # then every page was had
        assert project.records().keys() == site.truth().keys()
        assert project.sql("state.db", "SELECT sum(dead), sum(done) FROM jobs") == [(0, 120)]
        project.assert_sound()

    # and what was tried meanwhile was a handful: those of the first moments, then one at a time
    tried = project.sql("records.db", "SELECT count(*) FROM attempts WHERE outcome IN ('retry', 'released')")[0][0]
    assert tried <= 2 * (10 * QUIET.total_seconds() + 2 * 4 + 8), tried
