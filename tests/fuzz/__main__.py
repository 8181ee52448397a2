"""`python -m tests.fuzz 60`: every reader by turns, until the seconds are over or an input makes one fail."""

from __future__ import annotations

import sys
import time

from .readers import READERS
from .test_readers import walk

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
end, rounds = time.monotonic() + seconds, 0
while time.monotonic() < end:
    for name in READERS:
        if time.monotonic() >= end:
            break
        walk(name, 100, derandomize=False)
        rounds += 1
print(f"{rounds * 100:,} inputs for {min(rounds, len(READERS))} of {len(READERS)} readers, and none failed.")
