"""One crawl, measured from outside: wall time, CPU of the process tree, memory over the pages, and what is true.

Lives here: running a command on core 0, sampling /proc, comparing the server's log and the records with the truth.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .crawlers import Command
from .server import CORES, Server, on_first_core, on_last_core

SAMPLE_SECONDS = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sample:
    """The crawler at one instant."""

    served: int
    rss_kb: int
    cpu: float  # seconds, this process and its threads


@dataclass(frozen=True)
class Run:
    """What one crawl cost. `status` is the exit status, `complaint` the last lines it wrote to stderr."""

    wall: float
    cpu: float
    peak_rss_mb: float
    status: int
    complaint: str
    stolen: float  # share of the crawler's core that the host took away
    core_ms: float  # what a fixed piece of work cost on that core around this run
    samples: tuple[Sample, ...]

    @property
    def start_cpu(self) -> float:
        """CPU seconds spent before the first page was asked for: imports and set-up."""
        before = [sample.cpu for sample in self.samples if sample.served == 0]
        return before[-1] if before else 0.0


@dataclass(frozen=True)
class Growth:
    """Memory between a quarter of the pages and the last: first and last RSS, and the line through all samples."""

    first_mb: float
    last_mb: float
    kb_per_1000_pages: float


def run(command: Command, server: Server, *, limit_seconds: float) -> Run:
    """Run to the end on the first core, sampling; kill what is still running after `limit_seconds`."""
    errors = command.folder / "stderr.txt"
    core_before = core_milliseconds()
    steal_before, ticks_before = _core_ticks()
    with errors.open("wb") as stderr:
        began = time.perf_counter()
        process = subprocess.Popen(
            command.arguments,
            cwd=command.folder,
            env=command.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            preexec_fn=on_first_core,
            start_new_session=True,
        )
        end = Reaper(process.pid)
        samples: list[Sample] = []
        while not end.reaped.wait(SAMPLE_SECONDS):
            sample = _sample(process.pid, server)
            if sample is not None:
                samples.append(sample)
            if time.perf_counter() - began > limit_seconds:
                os.killpg(process.pid, signal.SIGKILL)
                end.reaped.wait()
        process.returncode = end.status
    steal, ticks = _core_ticks()
    return Run(
        wall=end.at - began,
        cpu=end.usage.ru_utime + end.usage.ru_stime,
        # The kernel lets this figure start at the size of the process that forked: ours is small, and stays so.
        peak_rss_mb=end.usage.ru_maxrss / 1024,
        status=end.status,
        complaint=_last_lines(errors),
        stolen=(steal - steal_before) / max(1, ticks - ticks_before),
        core_ms=(core_before + core_milliseconds()) / 2,
        samples=tuple(samples),
    )


def core_milliseconds() -> float:
    """CPU time of a fixed piece of work on the crawler's core, the best of five: how quick the core is just now.

    Virtual machines change their speed under a benchmark; without this figure nobody would know.
    """
    on_first_core()
    try:
        return min(_fixed_work() for _ in range(5))
    finally:
        on_last_core()


def _fixed_work() -> float:
    began = time.process_time()
    words = [f"word-{n % 997}" for n in range(60_000)]
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + len(word.split("-"))
    return (time.process_time() - began) * 1000


class Reaper:
    """Waits for a child in a thread, so that its end is timed exactly while others sample it."""

    def __init__(self, pid: int) -> None:
        self.reaped = threading.Event()
        self.status = -1
        self.at = 0.0
        self.usage: Any = None  # resource.struct_rusage
        self._pid = pid
        threading.Thread(target=self._wait, name="reaper", daemon=True).start()

    def _wait(self) -> None:
        _, status, self.usage = os.wait4(self._pid, 0)
        self.at = time.perf_counter()
        self.status = os.waitstatus_to_exitcode(status)
        self.reaped.set()


def _sample(pid: int, server: Server) -> Sample | None:
    """None when the process ended meanwhile."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    if "VmRSS:" not in status:
        return None
    rss = int(status.split("VmRSS:")[1].split()[0])
    fields = stat.rpartition(")")[2].split()
    return Sample(served=server.ask("/__served"), rss_kb=rss, cpu=(int(fields[11]) + int(fields[12])) / _TICKS)


def _core_ticks() -> tuple[int, int]:
    """Ticks stolen by the host from the crawler's core, and all its ticks."""
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name == f"cpu{CORES[0]}":
            return int(ticks[7]), sum(map(int, ticks[:8]))
    return 0, 1


def _last_lines(file: Path) -> str:
    lines = [line.strip() for line in file.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-400:]


def growth(samples: Iterable[Sample], pages: int) -> Growth | None:
    """How memory moved over the last three quarters of the crawl; None with fewer than three samples."""
    late = [sample for sample in samples if pages / 4 <= sample.served <= pages * 2]
    if len(late) < 3 or late[0].served == late[-1].served:
        return None
    mean_x = sum(sample.served for sample in late) / len(late)
    mean_y = sum(sample.rss_kb for sample in late) / len(late)
    over = sum((sample.served - mean_x) * (sample.rss_kb - mean_y) for sample in late)
    slope = over / sum((sample.served - mean_x) ** 2 for sample in late)
    return Growth(late[0].rss_kb / 1024, late[-1].rss_kb / 1024, slope * 1000)


@dataclass(frozen=True)
class Verdict:
    """Was the work done? `faults` is empty when every page was fetched exactly once and every record is right."""

    pages: int
    repeats: int
    records: int
    faults: tuple[str, ...]


def judge(
    hits: Mapping[str, int], records: Iterable[Mapping[str, Any]], truth: Mapping[str, Mapping[str, str]]
) -> Verdict:
    """Compare the server's log and the stored records with what is on the site."""
    fetched = {path: count for path, count in hits.items() if path in truth}
    repeats = sum(count - 1 for count in fetched.values())
    strays = sum(count for path, count in hits.items() if path not in truth and path != "/robots.txt")
    stored: Counter[str] = Counter()
    wrong = 0
    for record in records:
        path = urlsplit(str(record.get("url"))).path
        stored[path] += 1
        wrong += {name: record.get(name) for name in ("title", "price", "description", "sku")} != truth.get(path)
    counts = {
        "not fetched": len(truth) - len(fetched),
        "fetched again": repeats,
        "fetches of other paths": strays,
        "no robots.txt read": int("/robots.txt" not in hits),
        "records missing": len(truth.keys() - stored.keys()),
        "records twice": sum(count - 1 for count in stored.values()),
        "records wrong": wrong,
    }
    faults = tuple(f"{count} {what}" for what, count in counts.items() if count)
    return Verdict(len(fetched), repeats, stored.total(), faults)
