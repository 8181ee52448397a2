"""Where `-o` leads: a file, standard output, or an object store. Shared by the verbs that write."""

from __future__ import annotations

from pathlib import Path

from ..clock import SystemClock
from ..errors import Misconfigured
from ..store.export import Destination, destination_at, named, probe_destination
from ..text import visible

REMOTE = "s3://"
ANY_JOB = "job"


def output_place(output: str, *, now: float, job: str | None = None) -> Destination:
    """The place that the user means, `{time}`, `{date}` and `{job}` filled in. Raises Misconfigured, MissingExtra."""
    if output.lower().startswith(REMOTE):
        from ..backends.object.place import ObjectDestination  # its client is an extra

        address, mark, options = output.partition("?")  # an endpoint has no placeholders
        return ObjectDestination(named(address, now=now, job=job) + mark + options)
    scheme, found, _ = output.partition("://")
    if found and scheme.isalnum():
        raise Misconfigured(f"-o {visible(output)!r}: only s3:// can be written to, and files. Name a file.")
    return destination_at(Path(named(output, now=now, job=job)))


def try_output(output: str, format: str | None = None) -> None:
    """Is it a place that can be written? Asked before a crawl, whose job has no name yet. Raises as `output_place`."""
    probe_destination(output_place(output, now=SystemClock().now(), job=ANY_JOB), format)
