"""The command line: thin. Each file holds the verbs of one concern; they call the rest and print."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `gossamer` command."""
    from .app import run

    run()
