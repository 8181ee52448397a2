"""The command line, a thin layer. Each file holds the verbs of one concern: they call project/ and print."""

from __future__ import annotations

WATCHED = ("crawl", "worker")  # verbs that work through pages, in a child of their own


def main() -> None:
    """Entry point of the `gossamer` command. Commands that process pages run in a supervised child."""
    import gc
    import sys

    gc.set_threshold(1_000_000)  # imports create no garbage; `run_async` says when to look for it
    if sys.argv[1:] == ["--version"]:  # scripts ask for it: without loading anything
        from .. import __version__

        print(f"gossamer {__version__}")
        return

    if sys.argv[1:2] == ["help"]:  # `gossamer help crawl`
        sys.argv[1:] = [*sys.argv[2:], "--help"]
    try:
        if any(verb in sys.argv[1:] for verb in WATCHED):
            from ..process.lone_child import is_watched, processes_of, run_watched  # here: other commands are no forks

            if is_watched(sys.argv[1:], WATCHED):
                run_watched(_run, processes_of(sys.argv[1:]))
                return
        _run()
    except KeyboardInterrupt:  # before the command handles it itself
        sys.exit(130)


def _run() -> None:
    from .app import run

    run()
