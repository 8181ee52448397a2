"""Sites that want more than GET, crawled by one worker, and by four on Valkey of which some are killed at random.

The site's log is the witness: how often somebody logged in, and that no POST was sent twice. A POST that was out when
its worker died waits as `uncertain`; it is sent again because a person says so, here `gossamer dead replay`. Then the
records are the truth, all of it. `pytest -s` prints the table.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from tests.browser.conftest import chromium as chromium
from tests.faults.fleet import FleetProject, NoSeeds, WorkerProcess, poll_until, workers
from tests.patience import PATIENCE
from tests.services.proxies import http_proxy
from tests.services.valkey import DURABLE, running_valkey
from tests.sites.club import PASSWORD, Club, club
from tests.sites.desk import Desk

pytestmark = pytest.mark.long

KILLS = 3
SETTINGS = """[lease]
duration = "5s"
max_deliveries = 50
[sessions]
login_pause = "200ms"
[retry]
max_attempts = 10
base = "50ms"
cap = "200ms"
"""
HEAD = """
import os
from gossamer import Item, Page, Request, Spider

HERE = os.environ["SITE"]

class Found(Item, key="name"):
    name: str

class Park(Spider):
    concurrency = 8
"""
SEARCH = """
    start_urls = [HERE + "/search"]

    def parse(self, page: Page):
        for region in page.css("select[name=region] option::attr(value)").getall():
            yield page.submit("#search", {"region": region}, callback=self.cities)

    def cities(self, page: Page):
        for city in page.css("select[name=city] option::attr(value)").getall():
            yield page.submit("#search", {"city": city}, callback=self.streets)

    def streets(self, page: Page):
        for name in page.css("li::text").getall():
            yield Found(name=name)
"""
OFFERS = """
    def start(self):
        for number in range(4):
            yield Request(url=f"{HERE}/offers/{number}", method="POST", json={"page": 0})

    def parse(self, page: Page):
        found = page.json()
        for name in found["nodes"]:
            yield Found(name=name)
        if found["next"] is not None:
            yield page.follow(page.url, method="POST", json={"page": found["next"]})
"""
GRAPH = """
    def ask(self, number, after):
        asked = {"query": "query($after: Int) { list }", "variables": {"list": number, "after": after}}
        return Request(url=f"{HERE}/graphql", method="POST", json=asked, data={"list": number})

    def start(self):
        for number in range(4):
            yield self.ask(number, 0)

    def parse(self, page: Page):
        found = page.json()
        for name in found["nodes"]:
            yield Found(name=name)
        if found["next"] is not None:
            yield self.ask(page.data["list"], found["next"])
"""
DOOR = """
    def login_of(self):
        return ("ada", self.secret("CLUB"))

    def start(self):
        yield Request(url=HERE + "/KIND/0", auth=self.login_of())

    def parse(self, page: Page):
        yield Found(name=page.css("h1::text").get())
        for link in page.css("a"):
            yield page.follow(link, auth=self.login_of())
"""
MEMBERS = """
    start_urls = [HERE + "/page/0"]
    session = "member"

    async def login(self, session):
        page = await session.get(HERE + "/login")
        await session.submit(page.form("#login"), user="ada", password=self.secret("CLUB"))

    def logged_out(self, page: Page) -> bool:
        return bool(page.css("form#login"))

    def parse(self, page: Page):
        yield Found(name=page.url.rpartition("/")[2])
        yield from page.follow_all("a")
"""
POOL = MEMBERS.replace('session = "member"', "sessions = 5")
BOUND = MEMBERS.replace('session = "member"', 'session = "member"\n    proxy_pool = "dc"')
SCRIPT = """
    session = "visitor"

    def start(self):
        yield Request(url=HERE + "/script", fetcher="browser", kind="door")

    def door(self, page: Page):
        yield page.follow("/vault/0", self.parse)

    def parse(self, page: Page):
        yield Found(name=page.url.rpartition("/")[2])
        yield from page.follow_all("a")
"""


@dataclass(frozen=True)
class Case:
    """A site and how it is crawled. `path` is where its truth lies."""

    spider: str
    path: str
    plan: dict[str, object] = field(default_factory=dict)
    kind: type[Club] = Desk
    kill_after: tuple[int, int] = (4, 12)  # answers between two kills


PAGES = {"pages": 120, "latency": 0.02}
CASES = {
    "ViewState over two selects": Case(SEARCH, "search", {"latency": 0.3}),
    "JSON paged by POST": Case(OFFERS, "offers", {"latency": 0.15}),
    "GraphQL paged by POST": Case(GRAPH, "graphql", {"latency": 0.15}),
    "basic": Case(DOOR.replace("KIND", "basic"), "basic", PAGES, kill_after=(10, 30)),
    "digest": Case(DOOR.replace("KIND", "digest"), "digest", PAGES, kill_after=(10, 30)),
    "login that ends after 50 pages": Case(MEMBERS, "page", {**PAGES, "lasts": 50}, Club, (10, 30)),
    "pool of 5, 2 of them blocked": Case(POOL, "page", {**PAGES, "blocks": 2}, Club, (10, 30)),
    "session bound to an address": Case(BOUND, "page", {**PAGES, "bound": True}, Club, (10, 30)),
    "cookies set by a script": Case(SCRIPT, "vault", PAGES, Club, (10, 30)),
}


@pytest.fixture(scope="module")
def valkey():
    with running_valkey(*DURABLE) as server:
        yield server


def begun(project: FleetProject, site: Club, size: int) -> list[WorkerProcess]:
    first = project.start(command=("crawl", "park"))
    poll_until(lambda: bool(site.hits), [first])
    return [first, *(project.start() for _ in range(size - 1))]


def kill_some(project: FleetProject, site: Club, crew: list[WorkerProcess], case: Case) -> int:
    """Kill workers while there is work, each when the site has given so many answers more; start others in place."""
    chance, killed = random.Random(case.path), 0
    for _ in range(KILLS):
        goal = len(site.hits) + chance.randrange(*case.kill_after)
        poll_until(lambda goal=goal: len(site.hits) >= goal or all(one.code is not None for one in crew))
        living = [place for place, one in enumerate(crew) if one.code is None]
        if not living:
            break
        place = chance.choice(living)
        crew[place].kill()
        crew[place] = project.start()
        killed += 1
    return killed


def wait_for(crew: list[WorkerProcess]) -> None:
    for worker in crew:
        assert worker.wait(PATIENCE) in (0, 3), worker.said()  # 3: there are dead letters


def replay(project: FleetProject) -> None:
    command = [sys.executable, "-m", "gossamer", "dead", "replay", "--reason", "uncertain"]
    done = subprocess.run(
        command, cwd=project.folder, env=dict(project.environment), capture_output=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    with workers(project.start()) as crew:
        wait_for(crew)


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("name", CASES)
def test_every_site_is_had_whole_and_nothing_is_sent_twice(tmp_path, valkey, request, name, size):
    case = CASES[name]
    if case.path == "vault":
        request.getfixturevalue("chromium")
    with club(case.kind, **case.plan) as site, ExitStack() as stack:
        settings = SETTINGS
        if case.plan.get("bound"):
            proxies = [stack.enter_context(http_proxy(source=f"127.0.1.{number}")) for number in (1, 2, 3)]
            urls = ", ".join(f'"http://127.0.0.1:{proxy.port}"' for proxy in proxies)
            settings += f"[proxies.dc]\nurls = [{urls}]\nallow_private = true\n"
        project = FleetProject(
            tmp_path, NoSeeds(), state=valkey.address(), records="sqlite:///records.db",
            spider=HEAD + case.spider, settings=settings, environment={"SITE": site.url("")},
        )  # fmt: skip
        project.set(GOSSAMER_SECRET_CLUB=PASSWORD)
        with workers(*begun(project, site, size)) as crew:
            killed = kill_some(project, site, crew, case) if size > 1 else 0
            wait_for(crew)

        # Then no POST was sent twice, and whatever is missing is known to be uncertain
        posts = Counter(site.asked(f"/{case.path}")) if isinstance(site, Desk) else Counter()
        assert [asked for asked, count in posts.items() if count > 1] == []
        letters = project.outcome().letters
        assert {letter.reason for letter in letters} <= {"uncertain"}
        assert bool(letters) <= bool(killed)

        # And when a person has decided, all is there
        if letters:
            replay(project)
        outcome = project.outcome()
        truth = site.truth[case.path] if isinstance(site, Desk) else {str(number) for number in range(site.pages)}
        assert {record.key for record in outcome.records} == truth
        assert (outcome.letters, outcome.counts.open) == ([], 0)
        logins = _check_logins(site, case, killed)
        twice = sum(count - 1 for count in Counter(site.asked(f"/{case.path}")).values()) if posts else 0
        assert twice <= len(letters)
    print(
        f"| {name} | {size} | {killed} | {len(outcome.records)} of {len(truth)} | {posts.total() or ''} "
        f"| {len(letters)} | {logins} |"
    )


def _check_logins(site: Club, case: Case, killed: int) -> str:
    """One login for each session and expiry; a login that died with its worker is lost, and nothing else is."""
    if case.path in ("basic", "digest"):
        inside = [hit for hit in site.seen(f"/{case.path}/", status=200) if "authorization" in hit.headers]
        assert len(inside) == len(site.seen(f"/{case.path}/", status=200))
        return f"{len(site.seen(f'/{case.path}/', status=401))} challenges"
    if case.path == "vault":
        assert {hit.headers["cookie"] for hit in site.seen("/vault/")} == {"key=open"}
        return f"{len(site.seen('/script'))} by browser"
    if case.path != "page":
        return ""
    unused = sum(session.pages == 0 for session in site.sessions.values())
    blocked = sum(session.blocked for session in site.sessions.values())
    assert unused <= killed + blocked
    if site.bound:
        assert len({hit.address for hit in site.seen("/page/")}) == site.logins - unused == 1
        return f"{site.logins} logins, 1 address, {unused} lost"
    if site.lasts is not None:
        assert site.used_up <= site.logins - unused <= site.used_up + 1
        return f"{site.logins} logins, {site.used_up} ended, {unused} lost"
    assert blocked == 2
    assert 5 <= site.logins - unused <= 5 + blocked
    return f"{site.logins} logins, {blocked} retired, {unused} lost"
