"""The log of a run: what its workers said about it. Values without I/O; project/jobs/run_log.py writes them."""

from __future__ import annotations

import msgspec

RUN_LOG = "run-log"  # kind on the shelf
LEVELS = ("debug", "info", "warning", "error")


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """`event` is the kind of event, or Logged for a line of the spider's own. `detail` is the traceback, if code of the
    user failed. `code` and `commit` are on the line of a worker that begins: the version of the spider that it runs."""

    at: float
    level: str
    event: str
    message: str
    url: str = ""
    detail: str = ""
    code: str = ""
    commit: str = ""


class LogChunk(msgspec.Struct, frozen=True, array_like=True):
    """Lines of one level that one process wrote one after the other. `left_out` counts those without room."""

    job: str
    worker: str
    lines: tuple[LogLine, ...]
    left_out: int = 0
