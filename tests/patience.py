"""How long a test waits for what must happen.

A test that passes ends with the event, never with the clock: the number only says when to call it hung. It is large,
because the machine may be many times slower than the one that the test was written on.
"""

from __future__ import annotations

from datetime import timedelta

from gossamer.fetch.contract import Limits

PATIENCE = 300.0  # seconds

# Of a fetch that is expected to succeed. One that is expected to be given up has limits of its own.
LIMITS = Limits(connect=timedelta(seconds=60), read=timedelta(seconds=60), total=timedelta(seconds=100))
