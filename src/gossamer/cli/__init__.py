"""The command line, a thin layer. Each file holds the verbs of one concern: they call project/ and print."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `gossamer` command. Commands that process pages run in a supervised child."""
    import sys

    from ..process.lone_child import is_watched, processes_of, run_watched

    try:
        if is_watched(sys.argv[1:]):
            run_watched(_run, processes_of(sys.argv[1:]))
        else:
            _run()
    except KeyboardInterrupt:  # before the command handles it itself
        sys.exit(130)


def _run() -> None:
    from .app import run

    run()
