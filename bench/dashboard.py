"""Does every view of the dashboard open within a second in a large project on SQLite, and what do 20 open tabs cost?

    python -m bench.dashboard [--folder DIR] [--urls 1000000] [--tabs 20] [--watch 60]

The project is filled through the contracts: URLs over 2,000 sites, of which a tenth is settled and a hundredth dead;
records with their attempts and pages; 500 jobs, of which 10 run; 50 workers; boards of 2,000 sites and as many
spiders. With `--folder` it is kept, and filled once. Then each view is asked for three times over HTTP of the same
process, and the middle time counts. At last that many live pages are open at the same time, and the processor time of
the process is counted. Ends with 1 when a promise is not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

import httpx
import uvicorn

from gossamer import settings as settings_module
from gossamer.frontier.contract import DeadFilter, JobTerms, WorkerCard
from gossamer.model.record import Attempt, PageFacts, PageResult, Record
from gossamer.model.run import RUNS_SHOWN, SITE_RUNS, SPIDER_RUNS, RunLine, RunLines
from gossamer.model.shelf import ShelfKind
from gossamer.model.task import Candidate, UrlState
from gossamer.model.url import fingerprint, shape_of
from gossamer.project.access.keys import SCOPES, add_key
from gossamer.project.open import Project, open_project
from gossamer.project.pages.results import PageReader
from gossamer.server.app import make_app
from gossamer.server.run import HttpServer, listen
from gossamer.server.ui.views import VIEWS
from gossamer.settings import Settings

SITES, JOBS, RUNNING, WORKERS, RECORDS = 2000, 500, 10, 50, 100_000
BATCH = 2000
WITHIN = 1.0  # seconds that a view may take
MOST_OF_A_CORE = 0.05


def site_of(n: int) -> str:
    return f"shop{n % SITES}.example"


def candidates(job: int, count: int) -> Iterator[list[Candidate]]:
    for start in range(0, count, BATCH):
        batch = []
        for n in range(start, min(start + BATCH, count)):
            url = f"https://{site_of(n)}/{job}/page/{n}"
            batch.append(Candidate(url=url, fingerprint=fingerprint(url), site=site_of(n), shape=shape_of(url)))
        yield batch


async def fill(project: Project, urls: int) -> None:
    state, began = project.state, time.monotonic()
    for n in range(JOBS - RUNNING):
        job, _ = await state.jobs.open_job(f"spider{n % 40}", JobTerms(), fresh=False)
        await state.jobs.seal_seeds(job.id)
        await state.jobs.close_job(job.id, "done")
    jobs = []
    for n in range(RUNNING):
        job, _ = await state.jobs.open_job(f"big{n}", JobTerms(), fresh=False)
        jobs.append(job.id)
        for batch in candidates(n, urls // RUNNING):
            await state.frontier.add(job.id, batch)
        await state.jobs.seal_seeds(job.id)
    print(f"{urls:,} URLs in {time.monotonic() - began:.0f} s", flush=True)
    began = time.monotonic()
    for job in jobs:
        left = urls // RUNNING // 10
        while left > 0:
            batch = await state.frontier.lease(job, "host0/1/1", 500)
            if not batch.leases:
                break
            left -= len(batch.leases)
            await asyncio.gather(
                *(
                    state.frontier.bury(lease, f"http-{500 + n % 5}", "The server is busy.\nTraceback: none")
                    if n % 10 == 0
                    else state.frontier.complete(lease, UrlState.DONE)
                    for n, lease in enumerate(batch.leases)
                )
            )
    print(f"a tenth settled in {time.monotonic() - began:.0f} s", flush=True)
    began = time.monotonic()
    now = project.clock.now()
    for start in range(0, RECORDS, BATCH):
        await project.records.save([result(n, jobs[n % RUNNING], now) for n in range(start, start + BATCH)])
    print(f"{RECORDS:,} records in {time.monotonic() - began:.0f} s", flush=True)
    for n in range(WORKERS):
        await state.workers.beat(card(n, jobs[n % RUNNING], now))


async def fill_boards(project: Project) -> None:
    """As if each of the sites, and as many spiders, had had twenty runs."""
    now = project.clock.now()
    for kind, name_of in ((SPIDER_RUNS, "spider{}".format), (SITE_RUNS, site_of)):
        rows = ShelfKind(project.state.shelf, kind, RunLines)
        for start in range(0, SITES, 200):
            lines = [RunLines(name=name_of(n), runs=runs(n, now)) for n in range(start, start + 200)]
            await project.state.shelf.commit([rows.put(one.name, one, at=one.runs[-1].started) for one in lines])


def runs(n: int, now: float) -> tuple[RunLine, ...]:
    return tuple(
        RunLine(
            job=f"spider{n}-{run}", spider=f"spider{n}", owner="", started=now - (RUNS_SHOWN - run) * 3600 - n,
            finished=now - (RUNS_SHOWN - run) * 3600 + n, outcome="failed" if (n + run) % 9 == 0 else "done",
            pages=1000 + n, dead=n % 7, good=1000, bad=n % 50, records=900, bytes=40_000_000, credits=0.0,
            settled_at=0.0,
        )
        for run in range(RUNS_SHOWN)
    )  # fmt: skip


def result(n: int, job: str, now: float) -> PageResult:
    url, at = f"https://{site_of(n)}/item/{n}", now - RECORDS + n
    key = fingerprint(url)
    data = f'{{"title":"Thing {n}","price":{n % 97}.5,"url":"{url}"}}'
    digest = blake2b(data.encode(), digest_size=16).digest()
    record = Record(
        type="Product", site=site_of(n), key=str(n), url=url, job=job, spider=f"big{n % RUNNING}", data=data,
        content_hash=digest, scraped_at=at,
    )  # fmt: skip
    outcome, reason = ("retry", "timeout") if n % 20 == 0 else ("done", "")
    attempt = Attempt(
        at=at, job=job, url=url, fingerprint=key, site=site_of(n), worker=f"host{n % WORKERS}/1/1", attempt=1,
        outcome=outcome, status=200, bytes=40_000, latency=0.05 + n % 300 / 100, reason=reason,
    )  # fmt: skip
    page = PageFacts(fingerprint=key, url=url, job=job, fetched_at=at, status=200)
    return PageResult(attempt=attempt, page=page, records=(record,))


def card(n: int, job: str, now: float) -> WorkerCard:
    return WorkerCard(
        name=f"host{n}/{n + 1}/1", host=f"host{n}", pid=n + 1, version="1.0", started_at=now - 3600, seen_at=now + 3600,
        job=job, in_flight=16, done=10_000, cpu=0.7, memory=200_000_000,
    )  # fmt: skip


# -- looking ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[tuple[httpx.AsyncClient, Project]]:
    async with open_project(settings) as project, PageReader(project) as pages:
        made = await add_key(project, f"bench {time.time()}", list(SCOPES), rate=10_000.0)
        app = make_app(project, pages)
        sock = listen("127.0.0.1", 0)
        port = sock.getsockname()[1]
        server = HttpServer(uvicorn.Config(app, log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            address = f"http://127.0.0.1:{port}"
            async with httpx.AsyncClient(base_url=address, timeout=60, headers={"origin": address}) as client:
                while not server.started:
                    await asyncio.sleep(0.05)
                signed = await client.post("/ui/sign-in", data={"key": made.key, "next": "/ui/overview"})
                assert signed.status_code == 303, signed.text[:500]
                yield client, project
        finally:
            app.state.dashboard.close()
            server.should_exit = True
            await serving


async def paths_of(project: Project) -> list[str]:
    """Every view: with the filters that cost most, where it has some."""
    job = next(one for one in await project.state.jobs.jobs() if one.name == "big0").id
    letter = (await project.state.queue.dead(DeadFilter(job=job), 1))[0]
    url = f"https://{site_of(5)}/0/page/5"
    found = [view.path for view in VIEWS if "{" not in view.path and view.path != "/ui/record"]
    found += [
        f"/ui/jobs/{job}", "/ui/jobs?state=running", "/ui/jobs?q=big", f"/ui/queue?job={job}", "/ui/queue?q=shop19",
        f"/ui/queue/{site_of(5)}", f"/ui/dead?job={job}", f"/ui/dead?domain={site_of(7)}",
        f"/ui/dead/{job}/{letter.id}", f"/ui/why?url={quote(url, safe='')}", f"/ui/attempts?job={job}",
        "/ui/attempts?reason=timeout", "/ui/attempts?reason=nothing-like-this", f"/ui/attempts?domain={site_of(9)}",
        "/ui/records?type=Product&sort=-field.price", f"/ui/records?site={site_of(9)}&sort=field.price",
        "/ui/boards/sites?sort=-success", "/ui/boards/sites?q=shop19", "/ui/boards/spiders?sort=name",
        "/ui/overview?range=month", "/ui/routes?days=30", f"/ui/queue/{site_of(5)}?range=month",
        "/ui/record?type=Product&key=5", f"/ui/records?sort=stored&after={RECORDS - 100}", f"/ui/records?job={job}",
        f"/ui/attempts/page?url={quote(f'https://{site_of(5)}/item/5', safe='')}",
    ]  # fmt: skip
    return found


async def measure(client: httpx.AsyncClient, paths: list[str]) -> list[tuple[str, float, float, int, str]]:
    """Of each view: seconds until it was there, processor seconds of that, its size, and what was wrong with it."""
    rows = []
    for path in paths:
        times, used, size, trouble = [], [], 0, ""
        for _ in range(3):
            began, cpu = time.perf_counter(), time.process_time()
            answer = await client.get(path)
            times.append(time.perf_counter() - began)
            used.append(time.process_time() - cpu)
            size = len(answer.content)
            if answer.status_code != 200:
                trouble = f"status {answer.status_code}"
            elif "could not be made" in answer.text or "was not there within" in answer.text:
                trouble = "a part is missing"
        rows.append((path, sorted(times)[1], sorted(used)[1], size, trouble))
    return rows


async def watch(client: httpx.AsyncClient, paths: list[str], tabs: int, seconds: float) -> float:
    """Processor seconds of this process per second, with that many live pages open in another one, less what it takes
    without them. Half of the tabs look at what another one looks at, as people do."""
    before = time.process_time()
    await asyncio.sleep(5)
    idle = (time.process_time() - before) / 5
    chosen = [paths[n % max(1, tabs // 2) % len(paths)] for n in range(tabs)]
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    tabs_open = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.dashboard", "--look-at", str(client.base_url), cookie, *chosen
    )
    try:
        await asyncio.sleep(10)  # the first rendering of each
        before = time.process_time()
        await asyncio.sleep(seconds)
        used = (time.process_time() - before) / seconds
    finally:
        tabs_open.terminate()
        await tabs_open.wait()
    return used - idle


async def look_at(address: str, cookie: str, paths: list[str]) -> None:
    """Tabs, until this process is ended. One that was let go asks again, as in a browser."""
    headers = {"cookie": cookie, "origin": address}

    async def tab(client: httpx.AsyncClient, path: str) -> None:
        while True:
            async with client.stream("GET", f"/ui/live{path.removeprefix('/ui')}") as stream:
                async for _ in stream.aiter_bytes():
                    pass
            await asyncio.sleep(3)

    async with httpx.AsyncClient(base_url=address, timeout=60, headers=headers) as client:
        await asyncio.gather(*(tab(client, path) for path in paths))


async def run(folder: Path, urls: int, tabs: int, seconds: float) -> int:
    (folder / "gossamer.toml").write_text(
        'project = "bench"\n[politeness]\nrate = "unlimited"\nconcurrency = "none"\n[server]\nrate = "unlimited"\n',
        encoding="utf-8",
    )
    settings = settings_module.load(start=folder, environ={}, flags={})
    if not (folder / "filled").exists():
        async with open_project(settings) as project:
            await fill(project, urls)
            await fill_boards(project)
        (folder / "filled").write_text("")
    async with served(settings) as (client, project):
        rows = await measure(client, await paths_of(project))
        print("      wall       CPU      size  view")
        for path, wall, cpu, size, trouble in sorted(rows, key=lambda row: -row[1]):
            print(f"{wall * 1000:7.0f} ms {cpu * 1000:6.0f} ms {size / 1024:5.0f} KiB  {path}  {trouble}")
        slow = [row for row in rows if row[1] > WITHIN or row[4]]
        cost = 0.0
        if tabs:
            live = [view.path for view in VIEWS if view.live and "{" not in view.path]
            cost = await watch(client, live, tabs, seconds)
            print(f"{tabs} open tabs: {cost * 100:.1f} % of a core")
    if slow:
        print(f"Not within {WITHIN:g} s: {', '.join(row[0] for row in slow)}")
    return 1 if slow or cost > MOST_OF_A_CORE else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--urls", type=int, default=1_000_000)
    parser.add_argument("--tabs", type=int, default=20)
    parser.add_argument("--watch", type=float, default=60.0)
    parser.add_argument("--look-at", nargs="+", metavar="WHAT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.look_at:
        address, cookie, *paths = options.look_at
        asyncio.run(look_at(address, cookie, paths))
        return 0
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        return asyncio.run(run(options.folder, options.urls, options.tabs, options.watch))
    with tempfile.TemporaryDirectory(prefix="dashboard-") as folder:
        return asyncio.run(run(Path(folder), options.urls, options.tabs, options.watch))


if __name__ == "__main__":
    sys.exit(main())
