"""One URL's journey from lease to settlement, and the worker that makes many at once. Reading order:

journey.py       ONE URL's whole path: read this first
fetch_page.py    the only polite fetch loop: routes, robots.txt, pace, budget, blocks
held_lease.py    the lease on the page in progress, and how its settlement is retried
pacer.py         the interval between two requests to a site, kept at the moment they leave
attempt_log.py   the line that every attempt leaves; page_facts.py: what a fetch records about its page
context.py       what all journeys of one job in one process share
worker.py        many journeys at once, draining, renewing; slots.py, quarantine.py: which journeys may run
windows.py       when pages may be fetched; freshness.py: which pages need no fetch
seeding.py       the only way seeds enter; source_files.py: sitemaps and feeds, fetched and read; recrawl_choice.py:
                 which of their pages a run with a budget fetches
unleased_turn.py the pace of requests without a lease: files of sources, a robots.txt on another site
heartbeat.py     the card that shows that a worker process is alive
"""
