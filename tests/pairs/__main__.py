"""Tell one story, and print it: `python -m tests.pairs etags kill 7`. The last word is the seed."""

from __future__ import annotations

import sys

from .cover import check
from .features import FEATURES, draft_story

if __name__ == "__main__":
    *names, seed = sys.argv[1:]
    unknown = set(names) - FEATURES.keys()
    if unknown:
        sys.exit(f"{', '.join(unknown)}? There are: {', '.join(FEATURES)}")
    print(draft_story(names, int(seed)).script())
    check(tuple(names), int(seed), by_fork=False)
    print("As it should be.")
