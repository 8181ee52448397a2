"""What a person or a program can do with a project: plain async functions and values. The only place that wires.

The command line, a server and scripts call these functions and nothing below them. Each takes an open `Project` first,
or its settings where there may be no state yet; each value is a frozen struct in the shape of `--json`, with times in
ISO 8601. Importing this package loads no module of it: commands that only look should start quickly.

Reading order: open.py (the backends of a project), jobs.py and status.py (where every job stands), story.py (what
became of one URL), dead_letters.py, records.py and export.py, schedules.py, schedule_changes.py and timetable.py,
routes.py and proxies.py, workers.py, health.py, retention.py. What a project consists of: scaffold.py, spiders.py (what
can be crawled), recipes.py, settings_view.py. Then what runs: fetch.py (one page for a person), crawl.py and
worker_pool.py (a crawl, and many), wiring.py (from settings to a worker), service.py (processes that go on until a
signal), reparse/ and move/. For the HTTP API: api_requests.py (what programs can ask for), api_jobs.py (the jobs that
this begins), page_results.py (what came of their pages), api_views.py (what the holder of a key sees), keys.py.
"""
