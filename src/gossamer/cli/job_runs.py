"""`gossamer job log` and `job compare`: one run by itself, and beside another.

Apart from jobs.py, so that `gossamer status` does not load what reads records and spiders.
"""

from __future__ import annotations

from ..project.jobs import compare, run_log
from .jobs import job_app
from .operations import add_commands

add_commands(job_app, (run_log.LOG, compare.COMPARE))
