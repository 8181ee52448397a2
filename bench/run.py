"""`python -m bench.run`: Gossamer, Scrapy, Crawlee and a loop by hand on one site, on one machine, in one run."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from . import crawlers, site
from .crawlers import Crawler
from .measure import Growth, Run, Verdict, growth, judge, run
from .server import CORES, ROOT, Server, on_last_core, started
from .table import table

RESULTS = ROOT / "bench" / "results.json"
YARDSTICK = "Scrapy"
UNEQUAL_CORE = 1.15


@dataclass(frozen=True)
class Outcome:
    """One crawler in one round."""

    crawler: str
    version: str
    run: Run | None = None
    verdict: Verdict | None = None
    growth: Growth | None = None
    failure: str = ""
    left: dict[str, int] = field(default_factory=dict)  # bytes on disk, by store

    @property
    def pages_per_cpu_second(self) -> float:
        return self.verdict.pages / self.run.cpu if self.run and self.verdict else 0.0

    @property
    def sound(self) -> bool:
        """Every page was fetched exactly once and every record is right."""
        return self.verdict is not None and not self.verdict.faults


def measure(
    crawler: Crawler, server: Server, starts: Sequence[str], pages: int, seed: int, limit_seconds: float
) -> Outcome:
    """One crawl in a folder of its own, judged afterwards."""
    version = crawler.version()
    if version is None:
        return Outcome(crawler.name, "", failure="not installed; see the messages above")
    server.ask("/__reset")
    with tempfile.TemporaryDirectory(prefix=f"bench-{crawler.name.lower()}-") as name:
        folder = Path(name)
        cost = run(crawler.command(starts, folder), server, limit_seconds=limit_seconds)
        if cost.status:
            return Outcome(crawler.name, version, failure=f"failed: exit {cost.status}: {cost.complaint}")
        hits = server.ask("/__hits")
        left = crawlers.bytes_left(folder) if crawler.name == "Gossamer" else {}
        try:
            records = list(crawler.records(folder))
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            return Outcome(crawler.name, version, failure=f"failed: no records to read: {said.strip()[-300:]}")
    return Outcome(
        crawler.name,
        version,
        run=cost,
        verdict=judge(hits, records, site.truth(pages, seed)),
        growth=growth(cost.samples, pages),
        left=left,
    )


HEAD = (
    "crawler", "pages", "wall s", "pages/s", "CPU s", "of it start", "pages/CPU-s", f"x {YARDSTICK}",
    "after start", "peak RSS MB", "RSS 25%..100%", "per 1000 pages", "core ms", "verified",
)  # fmt: skip


def best(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The round that needed the least CPU: whatever disturbs a crawl only ever makes it slower."""
    good = [outcome for outcome in outcomes if outcome.run]
    return max(good, key=lambda outcome: outcome.pages_per_cpu_second) if good else None


def row(outcomes: Sequence[Outcome], yardstick: float | None) -> list[str]:
    """The rounds of one crawler as one line: its best round, but the highest memory and the worst verdict of all."""
    name = f"{outcomes[0].crawler} {outcomes[0].version}".strip()
    chosen = best(outcomes)
    if chosen is None or chosen.run is None or chosen.verdict is None:
        return [name, *[""] * (len(HEAD) - 2), "no"]
    cost, pages, memory = chosen.run, chosen.verdict.pages, chosen.growth
    return [
        name,
        str(pages),
        f"{cost.wall:.2f}",
        f"{pages / cost.wall:.0f}",
        f"{cost.cpu:.2f}",
        f"{cost.start_cpu:.2f}",
        f"{chosen.pages_per_cpu_second:.0f}",
        f"{chosen.pages_per_cpu_second / yardstick:.2f}" if yardstick else "-",
        f"{pages / max(0.01, cost.cpu - cost.start_cpu):.0f}",
        f"{max(outcome.run.peak_rss_mb for outcome in outcomes if outcome.run):.0f}",
        f"{memory.first_mb:.0f}..{memory.last_mb:.0f}" if memory else "-",
        f"{memory.kb_per_1000_pages:+.0f} KB" if memory else "-",
        f"{cost.core_ms:.1f}",
        "yes" if all(outcome.sound for outcome in outcomes) else "NO",
    ]


def report(rounds: Sequence[Sequence[Outcome]]) -> str:
    """The table, and below it everything that is not as it should be."""
    by_crawler = [[outcomes[i] for outcomes in rounds] for i in range(len(rounds[0]))]
    chosen = [outcome for outcome in map(best, by_crawler) if outcome is not None]
    yardstick = next((o.pages_per_cpu_second for o in chosen if o.crawler == YARDSTICK), None)
    lines = [table(HEAD, [row(outcomes, yardstick) for outcomes in by_crawler])]
    for outcome in (outcome for outcomes in rounds for outcome in outcomes):
        if outcome.failure:
            lines.append(f"{outcome.crawler}: {outcome.failure}")
        if outcome.verdict and outcome.verdict.faults:
            lines.append(f"{outcome.crawler}: {', '.join(outcome.verdict.faults)}")
    for outcome in chosen:
        if outcome.left and outcome.verdict:
            told = ", ".join(f"{size / outcome.verdict.pages:,.0f} in {name}" for name, size in outcome.left.items())
            lines.append(f"Bytes that {outcome.crawler} left for each page: {told}.")
    cores = [outcome.run.core_ms for outcome in chosen if outcome.run]
    if cores and max(cores) > min(cores) * UNEQUAL_CORE:
        share = max(cores) / min(cores) - 1
        lines.append(
            f"The core itself was up to {share:.0%} slower for some (core ms): use --rounds 3 for a fair ratio."
        )
    return "\n".join(dict.fromkeys(lines))


def save(rounds: Sequence[Sequence[Outcome]], pages: int, seed: int) -> None:
    outcomes = [[dataclasses.asdict(outcome) for outcome in each] for each in rounds]
    RESULTS.write_text(json.dumps({"pages": pages, "seed": seed, "rounds": outcomes}, indent=1), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--pages", type=int, default=site.PAGES, help="pages of the site (default %(default)s)")
    parser.add_argument("--seed", type=int, default=site.SEED)
    parser.add_argument("--rounds", type=int, default=1, help="crawls per crawler, in turn (default %(default)s)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="gossamer, scrapy, crawlee, by-hand")
    parser.add_argument(
        "--hosts",
        type=int,
        default=0,
        metavar="N",
        help="spread the pages over N names, over TLS; 200, say",
    )
    parser.add_argument("--limit", type=float, default=120, help="seconds until a crawl is killed")
    chosen = parser.parse_args()

    wanted = [c for c in crawlers.ALL if not chosen.only or c.name.lower() in map(str.lower, chosen.only)]
    if not wanted:
        parser.error(f"--only takes {', '.join(c.name.lower() for c in crawlers.ALL)}")
    if any(c.name != "Gossamer" for c in wanted):
        crawlers.install_peers()
    if len(CORES) < 2:
        print("One core only: server and crawler share it, and wall times mean little.", file=sys.stderr)
    on_last_core()
    rounds: list[list[Outcome]] = []
    site_arguments = ["--pages", str(chosen.pages), "--seed", str(chosen.seed)]
    with ExitStack() as stack:
        hosts = site.Hosts(chosen.hosts, free_port()) if chosen.hosts else None
        if hosts is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-tls-")))
            certificate = certified([f"h{n}.localhost" for n in range(hosts.count)], folder)
            site_arguments += ["--hosts", str(hosts.count), "--tls-port", str(hosts.port), "--certificate", certificate]
            os.environ["SSL_CERT_FILE"] = certificate  # whom the crawlers trust
        server = stack.enter_context(started("bench.site", *site_arguments))
        plain = [f"http://127.0.0.1:{server.port}/"]
        starts = hosts.starts(chosen.pages, chosen.seed) if hosts is not None else plain
        for number in range(chosen.rounds):
            rounds.append([])
            for crawler in wanted:
                print(f"round {number + 1} of {chosen.rounds}: {crawler.name}", file=sys.stderr, flush=True)
                rounds[-1].append(measure(crawler, server, starts, chosen.pages, chosen.seed, chosen.limit))
            if not chosen.only:
                rounds[-1] += [Outcome(name, "", failure=reason) for name, reason in crawlers.ABSENT.items()]
    save(rounds, chosen.pages, chosen.seed)
    where = f"on {chosen.hosts} hosts over TLS, " if chosen.hosts else ""
    print(
        f"\n{chosen.pages} pages of 30 to 45 KB with {site.LINKS} links, {where}seed {chosen.seed}; "
        f"crawler on core {CORES[0]}"
    )
    print(report(rounds))
    return 0 if all(outcome.sound or not outcome.version for each in rounds for outcome in each) else 1


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def certified(names: Sequence[str], folder: Path) -> str:
    """A file with a certificate for these names, which vouches for itself, and its key."""
    file = folder / "hosts.pem"
    made = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={names[0]}"]
    for_names = ["-addext", "subjectAltName=" + ",".join(f"DNS:{name}" for name in names)]
    command = ["openssl", "req", *made, *for_names, "-keyout", str(file), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
    with file.open("a") as both:
        both.write((folder / "cert.pem").read_text())
    return str(file)


if __name__ == "__main__":
    raise SystemExit(main())
