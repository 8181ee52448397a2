"""`python -m bench.fairness`: do 50 quick sites notice a slow one that holds nine tenths of the queue?

One server plays all hosts (`*.localhost`): `q0` to `q49` answer after 20 ms, `slow` after 20 s. The same quick sites
are crawled without and with the slow one, in turn; the server's log says when their first and last page was sent.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from .crawlers import gossamer
from .server import NOT_FOUND, ROOT, Server, json_response, on_first_core, on_last_core, response, serve, started
from .table import table

SITES = 50
PAGES = 100
SLOW_URLS = 9 * SITES * PAGES  # nine tenths of all URLs
QUICK_SECONDS = 0.02
SLOW_SECONDS = 20.0
ALLOWED_SPEED = 0.95
PATIENCE_SECONDS = 90.0

TOML = """\
[crawl]
drain = "1s"

[fetch]
allow_private = true
"""


class TwoSpeeds:
    """Answers for every host and writes down when pages were sent."""

    def __init__(self) -> None:
        links = "".join(f'<li><a href="/p/{n}">page {n}</a></li>' for n in range(1, PAGES))
        page = f"<html><title>quick</title><body><h1>Quick</h1><ul><li><a href='/'>0</a></li>{links}</ul></body></html>"
        self._page = response(page.encode())
        self._slow = response(b"<html><title>slow</title><body><h1>Slow</h1></body></html>")
        self._robots = response(b"User-agent: *\nAllow: /\n", content_type="text/plain")
        self._paths = {"/", *(f"/p/{n}" for n in range(1, PAGES))}
        self._forget()

    def _forget(self) -> None:
        self._asked: set[tuple[str, str]] = set()
        self._repeats = self._slow_hits = 0
        self._first = self._last = 0.0

    def answer(self, path: str, head: bytes) -> tuple[bytes, float]:
        if path == "/__reset":
            self._forget()
        if path.startswith("/__"):
            return json_response(self._report()), 0.0
        host = _host(head)
        slow = host.startswith("slow.")
        delay = SLOW_SECONDS if slow else QUICK_SECONDS
        if path == "/robots.txt":
            return self._robots, QUICK_SECONDS  # so that the slow site's pages are really asked for
        if slow:
            self._slow_hits += 1
            return self._slow, delay
        if path not in self._paths:
            return NOT_FOUND, delay
        self._note(host, path)
        return self._page, delay

    def _note(self, host: str, path: str) -> None:
        now = time.monotonic()
        self._first = self._first or now
        if (host, path) in self._asked:
            self._repeats += 1
        else:
            self._asked.add((host, path))
            self._last = now

    def _report(self) -> dict[str, Any]:
        return {
            "pages": len(self._asked),
            "repeats": self._repeats,
            "slow": self._slow_hits,
            "seconds": self._last - self._first + QUICK_SECONDS,
        }


def _host(head: bytes) -> str:
    start = head.lower().find(b"\r\nhost:") + len(b"\r\nhost:")
    return head[start : head.find(b"\r\n", start) if b"\r\n" in head[start:] else None].strip().decode("latin-1")


def crawl(server: Server, *, with_slow: bool, rate: str, concurrency: int) -> dict[str, Any]:
    """Crawl until every quick page was sent, then stop the crawler; return the server's report."""
    server.ask("/__reset")
    with tempfile.TemporaryDirectory(prefix="bench-fairness-") as name:
        folder = Path(name)
        (folder / "gossamer.toml").write_text(TOML, encoding="utf-8")
        command = gossamer(
            folder,
            "crawl", f"{ROOT / 'bench' / 'fairness_spider.py'}:ManySites", "--rate", rate,
            "--concurrency", str(concurrency), "--quiet",
            variables={"BENCH_PORT": str(server.port), "BENCH_SLOW_URLS": str(SLOW_URLS if with_slow else 0)},
        )  # fmt: skip
        with (folder / "stderr.txt").open("wb") as stderr:
            process = subprocess.Popen(
                command.arguments, cwd=folder, env=command.environment(), preexec_fn=on_first_core,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
            )  # fmt: skip
            try:
                _until_quick_ones_are_done(server, process)
            finally:
                _stop(process)
        seen: dict[str, Any] = server.ask("/__report")
        if seen["pages"] != SITES * PAGES:
            said = " / ".join((folder / "stderr.txt").read_text(errors="replace").strip().splitlines()[-3:])
            raise SystemExit(f"Only {seen['pages']} of {SITES * PAGES} quick pages were fetched. {said[-400:]}")
    return seen


def _until_quick_ones_are_done(server: Server, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if server.ask("/__report")["pages"] == SITES * PAGES:
            return
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fairness", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="crawls of each kind, in turn (default %(default)s)")
    parser.add_argument("--rate", default="unlimited", help="per site (default %(default)s)")
    parser.add_argument("--concurrency", type=int, default=64, help="of the whole crawl (default %(default)s)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(TwoSpeeds().answer)
        return 0
    on_last_core()
    rows, alone, beside = [], [], []
    with started("bench.fairness", "--serve") as server:
        for number in range(chosen.rounds):
            for with_slow, times in ((False, alone), (True, beside)):
                seen = crawl(server, with_slow=with_slow, rate=chosen.rate, concurrency=chosen.concurrency)
                times.append(seen["seconds"])
                kind = f"{number + 1}: with the slow site" if with_slow else f"{number + 1}: without"
                speed = seen["pages"] / seen["seconds"]
                rows.append((kind, f"{seen['seconds']:.2f}", f"{speed:.0f}", str(seen["slow"]), str(seen["repeats"])))
    ratio = median(alone) / median(beside)
    print(table(("round", "quick ones s", "pages/s", "slow requests", "fetched again"), rows))
    kept = ratio >= ALLOWED_SPEED
    print(f"Speed of the quick sites beside the slow one: {ratio:.1%} (medians). Promised: {ALLOWED_SPEED:.0%}. "
          f"{'Kept.' if kept else 'NOT KEPT.'}")  # fmt: skip
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
