"""The command line: thin. Each file holds the verbs of one concern; they call the rest and print."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `gossamer` command. What works through pages runs in a child of its own (keeper.py)."""
    import sys

    from ..keeper import is_kept, keep

    if is_kept(sys.argv[1:]):
        keep(_run)
    else:
        _run()


def _run() -> None:
    from .app import run

    run()
