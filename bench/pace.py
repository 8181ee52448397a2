"""`python -m bench.pace`: does a site ever get two requests closer together than its rate allows?

Every row crawls new sites at a fixed rate: plain or over TLS with handshakes as slow as real ones, direct, through a
proxy, by profile and in a browser, with one process and with sixteen that are killed, stopped and dropped. The witness
is the site, or the proxy before it: its own process, with the kernel's time of every request.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.pace import ROWS, TOLERANCE, Paced, measure

from .table import table

PROMISED_SHARE = 0.97  # of the allowed rate, where nothing but the pace holds a crawl up
SHOWN = 5  # short gaps that are told of for each row


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pace", description=__doc__)
    parser.add_argument("--gaps", type=int, default=500, help="of each row (default %(default)s; the full run: 5000)")
    parser.add_argument("--only", nargs="*", default=[], help="rows whose name has one of these words in it")
    parser.add_argument("--seed", type=int, default=1, help="of kills and stops (default %(default)s)")
    chosen = parser.parse_args()
    rows = [row for row in ROWS if not chosen.only or any(word in row.name for word in chosen.only)]
    results: list[Paced] = []
    broken: list[str] = []
    for row in rows:
        with tempfile.TemporaryDirectory(prefix="bench-pace-") as folder:
            try:
                paced = measure(row, Path(folder), chosen.gaps, random.Random(chosen.seed))
            except AssertionError as error:  # the crawl did not end, or ended badly
                print(error, flush=True)
                broken.append(row.name)
                continue
        results.append(paced)
        print(f"{row.name}: {len(paced.short)} of {paced.gaps} gaps too short", flush=True)
        for words in paced.short[:SHOWN]:
            print(f"    {words}", flush=True)
        if paced.short_beyond:
            print(f"    {paced.short_beyond} are too short at the site: the proxy before it was slow", flush=True)
    cells = [
        (
            paced.row.name, f"{paced.gaps:,}", f"{paced.row.interval * 1000:.0f}", f"{paced.smallest * 1000:.1f}",
            str(len(paced.short)), str(paced.missing), str(paced.faults),
            f"{paced.share:.1%}",
        )
        for paced in results
    ]  # fmt: skip
    print(
        table(
            ("row", "gaps", "interval ms", "smallest ms", "too short", "pages missing", "faults", "of the rate"), cells
        )
    )
    broken += [paced.row.name for paced in results if not paced.is_kept]
    slow = [paced.row.name for paced in results if paced.row.is_fast and paced.share < PROMISED_SHARE]
    print(
        f"Promised: no gap below the interval less {TOLERANCE * 1000:.0f} ms. "
        + (f"NOT KEPT: {', '.join(broken)}." if broken else "Kept.")
    )
    print(
        f"Promised: {PROMISED_SHARE:.0%} of the allowed rate where nothing else holds a crawl up. "
        + (f"NOT KEPT: {', '.join(slow)}." if slow else "Kept.")
    )
    return 1 if broken or slow else 0


if __name__ == "__main__":
    sys.exit(main())
