"""`make quality`: every section in turn. Ends with 1 when a section breaks; a missing set is said, not hidden."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module

SECTIONS = (
    ("product", "Products"),
    ("article", "Articles"),
    ("content", "Main content by type of page"),
    ("prices", "Prices in texts"),
)


def main(wanted: list[str]) -> int:
    """Print the sections whose names are given, or all. Gives the exit code."""
    unknown = sorted(set(wanted) - {name for name, _ in SECTIONS})
    if unknown:
        print(f"No section {', '.join(unknown)}. There are: {', '.join(name for name, _ in SECTIONS)}.")
        return 2
    broken = []
    for name, title in SECTIONS:
        if wanted and name not in wanted:
            continue
        print(f"\n== {title}", flush=True)
        try:
            print("\n".join(import_module(f"quality.{name}").report()), flush=True)
        except Exception:
            # The other sections are still worth having; this one is told in full and fails the run.
            traceback.print_exc()
            broken.append(name)
    if broken:
        print(f"\nNot measured because of an error: {', '.join(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
