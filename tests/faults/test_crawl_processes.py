"""`gossamer crawl --processes N`: one crawl by several processes. The witness is the server's log."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter

import pytest

from tests.faults.commands import CommandProject, is_alive, until
from tests.sites.running import park

pytestmark = pytest.mark.long

PROCESSES = 3
SHARED = '[politeness]\nrate = "unlimited"\nconcurrency = 12\n[crawl]\nconcurrency = 4\n[lease]\nmax_deliveries = 20'


@pytest.fixture
def folder(tmp_path):
    """Projects made in it, whose commands do not outlive the test."""
    made = []

    def project(seeds, settings=SHARED):
        made.append(CommandProject(tmp_path / f"project-{len(made)}", seeds, settings))
        return made[-1]

    yield project
    for one in made:
        one.close()


def test_processes_do_one_crawl_and_one_of_them_speaks(folder):
    with park(pages=60, latency_ms=200, body_bytes=3000) as site:
        # given processes of which no one can take all that the site allows
        project = folder(site.seeds())
        crawl = project.run("crawl", "park", "--processes", str(PROCESSES), "--fresh", "-o", "plants.jsonl")

        # then it ends like a crawl by one process, with one greeting, one summary and all records in the file
        assert crawl.ended() == 0, crawl.said()
        said = crawl.said()
        assert said.count("Crawling park") == 1
        assert said.count("Done.") == 1
        assert "60 done" in said
        assert "60 yielded = 60 new" in said
        assert "by this command" not in said
        lines = (project.folder / "plants.jsonl").read_text().splitlines()
        assert {json.loads(line)["sku"] for line in lines} == site.truth().keys()
        assert len(lines) == 60

        # and each had its part of the work, which nobody did twice
        assert set(Counter(hit.path for hit in site.hits()).values()) == {1}
        assert len(project.sql("records.db", "SELECT DISTINCT worker FROM attempts")) == PROCESSES
        assert max(hit.in_progress for hit in site.hits()) <= 12
        assert project.sql("state.db", "SELECT id FROM jobs") == [("park-1",)]
        project.assert_sound()


def test_a_limit_holds_for_all_processes_together_and_small_crawls_make_one_job(folder):
    with park(pages=60, body_bytes=3000) as site:
        project = folder(site.seeds())
        limited = project.run("crawl", "park", "--processes", str(PROCESSES), "--limit", "20", "--quiet")
        assert limited.ended() == 0, limited.said()
        assert len(site.hits()) == 20

        # A helper that comes when the crawl is over begins no other.
        tiny = project.run("crawl", "park", "--processes", str(PROCESSES), "--limit", "1", "--quiet")
        assert tiny.ended() == 0, tiny.said()
        assert project.sql("state.db", "SELECT id FROM jobs") == [("park-1",), ("park-2",)]
        project.assert_sound()


def test_ctrl_c_drains_all_processes_and_the_output_has_what_is_done(folder):
    with park(pages=80, latency_ms=300, body_bytes=3000) as site:
        project = folder(site.seeds())
        crawl = project.run("crawl", "park", "--processes", str(PROCESSES), "-o", "plants.jsonl")
        until(lambda: len(site.hits()) >= 20, crawl)
        crawl.signal(signal.SIGINT)
        assert crawl.ended() == 130, crawl.said()
        assert crawl.said().count("Stopped.") == 1
        assert project.sql("state.db", "SELECT count(*) FROM url_list WHERE state = 'leased'") == [(0,)]
        assert len((project.folder / "plants.jsonl").read_text().splitlines()) == len(project.records())

        crawl = project.run("crawl", "park", "--processes", str(PROCESSES), "--quiet")
        assert crawl.ended() == 0, crawl.said()
        assert set(Counter(hit.path for hit in site.hits()).values()) == {1}
        assert project.records().keys() == site.truth().keys()
        project.assert_sound()


def test_what_is_wrong_is_said_once(folder):
    project = folder(["http://127.0.0.1:9/"])
    for words, message in (
        (("crawl", "nobody", "--processes", "3"), "nobody"),
        (("crawl", "park", "--processes", "0"), "--processes takes 1 to 64"),
        (("crawl", "park", "--processes=2", "--replay"), "--replay runs in one process"),
    ):
        command = project.run(*words)
        assert command.ended() == 1, command.said()
        assert command.said().count("gossamer:") == 1
        assert message in command.said()


def test_killed_processes_are_replaced_and_nothing_is_lost_or_doubled(folder):
    # given a crawl by three processes, of which one after the other is killed: the first, the helpers, then the parent
    chance = random.Random(19)
    with park(pages=1500, body_bytes=3000, links=8, latency_ms=10) as site:
        project = folder(site.seeds())
        in_flight = 0

        def start():
            crawl = project.run("crawl", "park", "--processes", str(PROCESSES), "--quiet")
            until(lambda: len(crawl.children()) == PROCESSES or crawl.process.poll() is not None, crawl)
            return crawl

        for _ in range(3):
            crawl = start()
            for number in range(PROCESSES):
                goal = len(site.hits()) + chance.randrange(1, 60)
                until(lambda goal=goal: len(site.hits()) >= goal, crawl)
                victim = sorted(crawl.children())[number]  # the oldest, one that is younger, one that is quite new
                os.kill(victim, signal.SIGKILL)
                until(lambda victim=victim: not is_alive(victim), crawl)
                in_flight += 4
            children = crawl.children()
            os.kill(crawl.pid, signal.SIGKILL)
            crawl.process.wait()
            until(lambda children=children: not any(map(is_alive, children)))
            in_flight += 4 * PROCESSES

        # when it is left alone at last
        crawl = start()
        assert crawl.ended() == 0, crawl.said()

        # then there was one job, and every page was fetched, hardly any twice
        hits = Counter(hit.path for hit in site.hits())
        assert set(hits) == set(site.grounds.paths(site.hosts[0]))
        assert sum(hits.values()) - len(hits) <= in_flight
        assert project.records().keys() == site.truth().keys()
        assert project.sql("state.db", "SELECT id FROM jobs") == [("park-1",)]
        project.assert_sound()


def test_the_first_process_killed_at_the_end_begins_no_other_job(folder):
    with park(pages=40, latency_ms=400, body_bytes=3000) as site:
        # given a first process that dies when hardly anything is left, so that its helpers end the job
        project = folder(site.seeds())
        crawl = project.run("crawl", "park", "--processes", "2", "--quiet", "--fresh")
        until(lambda: len(site.hits()) >= 36, crawl)
        first = min(crawl.children())
        os.kill(first, signal.SIGKILL)

        # then its follower reports that job, instead of beginning the next
        assert crawl.ended() == 0, crawl.said()
        assert project.sql("state.db", "SELECT id FROM jobs") == [("park-1",)]
        assert project.records().keys() == site.truth().keys()
