"""Parses archived pages again: makes no request, uses all cores, and replaces what was stored before.

Reading order: archive_job.py (the job: which pages, its tasks, its end), archive_journey.py (one page: parsed, stored,
settled), run.py (jobs that are started and worked on here), report.py (what a run did), parser_pool.py (the child
processes, and what happens when one dies over a page), parser_process.py (one child: raw pages in, records out),
messages.py (the messages between the two), results.py (what is stored for a page), spider_refs.py (which spider parses
a page), preview.py (what a run would change), dead_letters.py (letters that are parsed again instead of fetched again).
"""
