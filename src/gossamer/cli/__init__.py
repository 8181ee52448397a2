"""The command line: thin. Each file holds the verbs of one concern; they call the rest and print."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `gossamer` command. What works through pages runs in a child of its own (keeper.py)."""
    import sys

    from ..process.keeper import is_kept, keep

    try:
        if is_kept(sys.argv[1:]):
            keep(_run)
        else:
            _run()
    except KeyboardInterrupt:  # before anybody was there to heed it
        sys.exit(130)


def _run() -> None:
    from .app import run

    run()
