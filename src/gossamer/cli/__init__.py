"""The command line: thin. Each file holds the verbs of one concern; they call the rest and print."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `gossamer` command. Commands that work through pages run in a child that is watched."""
    import sys

    from ..process.lone_child import is_watched, processes_of, run_watched

    try:
        if is_watched(sys.argv[1:]):
            run_watched(_run, processes_of(sys.argv[1:]))
        else:
            _run()
    except KeyboardInterrupt:  # before the command heeds it
        sys.exit(130)


def _run() -> None:
    from .app import run

    run()
