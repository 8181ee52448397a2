"""What a person or a program can do with a project: plain async functions and values. All wiring happens here.

The command line, the server and scripts call these functions and nothing below them. Each takes an open `Project`
first, or only its settings where no state may exist yet. Each returns a frozen struct in the shape of `--json`, with
times in ISO 8601. Importing this package loads none of its modules, so that read-only commands start quickly.

Reading order: open.py (the backends of a project), jobs.py and status.py (where every job stands), story.py (the
history of one URL), dead_letters.py, records.py and export.py, schedules.py, schedule_changes.py and timetable.py,
routes.py and proxies.py, workers.py, health.py, retention.py. What a project consists of: scaffold.py, spiders.py (what
can be crawled), recipes.py, settings_view.py. What runs: fetch.py (one page for a person), crawl.py and worker_pool.py
(one crawl, and all running jobs), wiring.py (from settings to a worker), service.py (processes that run until a
signal), reparse/ and move/. For the HTTP API: api_requests.py (what clients can request), api_jobs.py (the jobs that
these requests start), page_results.py (the results of their pages), api_views.py (what the holder of a key sees),
keys.py.
"""
