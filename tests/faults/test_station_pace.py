"""The pace of a site, when one station works on two jobs that visit it. Apart from the other tests of stations: it is
timed."""

from __future__ import annotations

import signal
import time
from collections import Counter
from itertools import pairwise

from tests.faults.stations import until
from tests.faults.test_station import SPIDER
from tests.faults.test_station import opened as opened
from tests.sites.running import park


def test_two_jobs_of_one_station_keep_a_sites_pace_together(opened):
    # given two spiders for the same site, which allow it ten requests a second
    with park(pages=25, robots="User-agent: *\nDisallow:") as site:
        project = opened([], "")
        for name in ("One", "Two"):
            file = project.folder / "spiders" / f"{name.lower()}.py"
            file.write_text(SPIDER.format(name=name, url=site.url()))
            crawl = project.run("crawl", name.lower(), "--quiet")
            until(lambda name=name: any(job["name"] == name.lower() for job in project.json("status")), crawl)
            crawl.signal(signal.SIGTERM)
            crawl.ended()
        # when one station works on both, and has to ask for robots.txt on the way
        project.sql("state.db", "DELETE FROM robots")
        began = time.monotonic()
        project.done("worker", "--until-idle")

        # then every page was visited by each, and no two requests are closer than the pace allows
        assert set(Counter(hit.path for hit in site.hits()).values()) == {2}
        times = sorted(hit.at for hit in site.hits(robots=True) if hit.at > began)
        assert min(later - earlier for earlier, later in pairwise(times)) >= 0.1 - 0.004
