"""A world of sites that do not serve everybody: `python -m tests.sites.blocking --plan JSON --log FILE`.

    with blocking_world({"shop.localhost": "open", "bank.localhost": "fortress"}, pages=5) as world:
        world.url("bank.localhost", 3)       # what to crawl
        world.truth()                        # every record that somebody can get, by sku
        world.hits(host="bank.localhost")    # who asked for what through which proxy, and what he was given

Who asks is told by the address that he dials from, which no header can forge: 127.0.0.1 is the crawler itself,
127.0.1.x a datacenter proxy, 127.0.2.x a residential one, 127.0.3.x a managed API. The proxies of the tests take such
an address as their `source`. One process of its own, one JSON line in the log for each request, as in the park.

    open            serves everybody
    direct-shy      serves whoever comes through any proxy
    datacenter-shy  serves residential proxies and managed APIs
    fortress        serves managed APIs
    script          serves a shell; its script fetches /data.json and makes the page
    profiled        serves those whose headers agree with each other as a browser's do
    counting:N:S    serves N pages to each proxy, then says 429 once, then 403 for S seconds (10 and 5 unless said)
    login           shows a login form to everybody
    banning:A,B:S   refuses the proxies 127.0.x.A and 127.0.x.B (or 127.0.A, for 1.2), robots.txt included: for good, or
                    for S seconds from the first request on; robots.txt forbids /page/0 to the others
    private:A,B     serves everybody all but /page/A and /page/B, which are forbidden to all
    flaky:N         fails N of 100 requests, whoever makes them: status 500, a dropped connection, status 503

A managed API that says `X-Rendered: yes` gets what the script would have made: it has a browser of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from .grounds import LOREM, record_of
from .running import ROOT, whole_lines

PROXIES = {"127.0.1.": "datacenter", "127.0.2.": "residential", "127.0.3.": "managed"}
KINDS = (
    "open", "direct-shy", "datacenter-shy", "fortress", "script", "profiled", "counting", "login", "banning", "private",
    "flaky",
)  # fmt: skip
SERVED = {
    "direct-shy": ("datacenter", "residential", "managed"),
    "datacenter-shy": ("residential", "managed"),
    "fortress": ("managed",),
}
NOBODY = ("login",)  # kinds whose pages nobody gets


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    domains: dict[str, str]
    pages: int = 5
    body_bytes: int = 2_000


class BlockedHit(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `proxy` is the address it came from, `through` what sort of proxy that is, `verdict` what was given:
    page, data, shell, challenge, captcha, forbidden, rate, login, robots or missing."""

    at: float
    host: str
    path: str
    status: int
    verdict: str
    proxy: str
    through: str
    headers: list[tuple[str, str]]


class Answer(NamedTuple):
    status: int
    verdict: str
    body: str
    lines: tuple[str, ...] = ()
    kind: str = "text/html; charset=utf-8"


def kind_of_proxy(address: str) -> str:
    return next((kind for start, kind in PROXIES.items() if address.startswith(start)), "direct")


# --- what is shown --------------------------------------------------------------------------------------------


def page_of(plan: Plan, host: str, number: int) -> str:
    record = record_of(host, f"/page/{number}")
    links = "".join(f'<li><a href="/page/{n}">page {n}</a></li>' for n in range(plan.pages))
    words = (LOREM * (plan.body_bytes // len(LOREM) + 1))[: plan.body_bytes]
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{record["title"]}</title></head><body>'
        f'<h1 class="title">{record["title"]}</h1><p class="price">{record["price"]} EUR</p>'
        f'<p class="sku">{record["sku"]}</p><ul class="links">{links}</ul><div class="text">{words}</div></body></html>'
    )


def shell_of(host: str, number: int) -> str:
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{host}</title></head><body>'
        '<noscript>You need to enable JavaScript to run this app.</noscript><div id="root"></div><script>'
        f'fetch("/data.json?page={number}").then(answer => answer.json()).then(data => {{ document.title = data.title; '
        'const root = document.getElementById("root"); '
        'for (const [tag, name, text] of [["h1", "title", data.title], ["p", "price", data.price + " EUR"], '
        '["p", "sku", data.sku], ["div", "text", data.text]]) { const part = document.createElement(tag); '
        "part.className = name; part.textContent = text; root.append(part); } "
        "for (const n of data.links) { const link = document.createElement('a'); link.href = '/page/' + n; "
        "link.textContent = 'page ' + n; root.append(link); } });</script></body></html>"
    )


def data_of(plan: Plan, host: str, number: int) -> str:
    return json.dumps({**record_of(host, f"/page/{number}"), "links": list(range(plan.pages)), "text": LOREM})


FORBIDDEN = Answer(
    403, "forbidden", "<html><head><title>403 Forbidden</title></head><body><h1>Forbidden</h1></body></html>"
)
CHALLENGE = Answer(
    503,
    "challenge",
    "<html><head><title>Just a moment...</title></head><body><noscript>Enable JavaScript and cookies to continue."
    "</noscript><script>window._cf_chl_opt = {};</script></body></html>",
    ("Server: cloudflare", "CF-Mitigated: challenge"),
)
CAPTCHA = Answer(
    200,
    "captcha",
    "<html><head><title>Are you a robot?</title></head><body><p>Please verify you are human.</p>"
    '<div class="g-recaptcha" data-sitekey="none"></div></body></html>',
)
LOGIN = Answer(
    200,
    "login",
    '<html><head><title>Log in</title></head><body><form action="/enter" method="post"><input name="user">'
    '<input type="password" name="password"><button>Log in</button></form></body></html>',
)
ROBOTS = Answer(404, "robots", "no rules", kind="text/plain")
RULES = Answer(200, "robots", "User-agent: *\nDisallow: /page/0\n", kind="text/plain")
BROKEN = Answer(500, "broken", "<html><head><title>Error</title></head><body>Something went wrong.</body></html>")
BUSY = Answer(503, "busy", "<html><head><title>Busy</title></head><body>Try again.</body></html>")
DROPPED = Answer(0, "dropped", "")
MISSING = Answer(404, "missing", "not found", kind="text/plain")


def wall_of(host: str) -> Answer:
    """One of three, always the same for a host: not every wall has a status that tells."""
    return (FORBIDDEN, CHALLENGE, CAPTCHA)[crc32(host.encode()) % 3]


def looks_like_a_browser(headers: list[tuple[str, str]]) -> bool:
    """Do user agent, client hints and the order of the headers tell the same story?"""
    names = [name for name, _ in headers]
    values = dict(headers)
    agent = values.get("user-agent", "")
    if not agent.startswith("Mozilla/5.0 ") or not all(
        name in values for name in ("accept-language", "sec-fetch-mode")
    ):
        return False
    hints = values.get("sec-ch-ua", "")
    chrome = re.search(r"Chrome/(\d+)", agent)
    if chrome is None:
        return not hints and ("Firefox/" in agent or "Safari/" in agent)
    platform = values.get("sec-ch-ua-platform", "").strip('"')
    if platform == "macOS":
        platform = "Mac OS X"
    if f'v="{chrome[1]}"' not in hints or not platform or platform not in agent:
        return False
    order = [names.index(name) for name in ("sec-ch-ua", "user-agent", "accept", "sec-fetch-mode", "accept-language")]
    return order == sorted(order)


# --- who gets it ----------------------------------------------------------------------------------------------


class Gate:
    """What each kind of site gives to whom. Remembers only how often a proxy came to a counting site."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._visits: dict[tuple[str, str], int] = {}
        self._shut_until: dict[tuple[str, str], float] = {}
        self._began: dict[str, float] = {}
        self._asked = 0

    def answer(self, host: str, path: str, proxy: str, headers: list[tuple[str, str]], now: float) -> Answer:
        plan = self._plan
        kind, *numbers = plan.domains.get(host, "").split(":")
        if kind == "banning" and self._is_banned(host, proxy, numbers, now):
            return FORBIDDEN._replace(verdict="robots") if path == "/robots.txt" else FORBIDDEN
        if path == "/robots.txt":
            return RULES if kind == "banning" else ROBOTS
        found = re.fullmatch(r"/page/(\d{1,6})|/data\.json\?page=(\d{1,6})|/", path)
        if host not in plan.domains or found is None:
            return MISSING
        number = int(found[1] or found[2] or 0)
        if number >= plan.pages:
            return MISSING
        through = kind_of_proxy(proxy)
        page = Answer(200, "page", page_of(plan, host, number))
        if kind in SERVED:
            return page if through in SERVED[kind] else wall_of(host)
        if kind == "script":
            if found[2]:
                return Answer(200, "data", data_of(plan, host, number), kind="application/json")
            rendered = through == "managed" and ("x-rendered", "yes") in headers
            return page if rendered else Answer(200, "shell", shell_of(host, number))
        if kind == "profiled":
            return page if through == "managed" or looks_like_a_browser(headers) else FORBIDDEN
        if kind == "counting" and through != "managed":  # a managed API never comes from the same place for long
            return self._counted((host, proxy), page, numbers, now)
        if kind == "private" and str(number) in numbers[0].split(","):
            return FORBIDDEN
        if kind == "flaky":
            self._asked += 1
            if (self._asked * 37) % 100 < int(numbers[0]):
                return (BROKEN, BROKEN, BROKEN, DROPPED, BUSY)[self._asked % 5]
        return LOGIN if kind == "login" else page

    def _is_banned(self, host: str, proxy: str, numbers: list[str], now: float) -> bool:
        began = self._began.setdefault(host, now)
        if len(numbers) > 1 and now >= began + float(numbers[1]):
            return False
        names = (proxy.rpartition(".")[2], proxy.removeprefix("127.0."))
        return kind_of_proxy(proxy) != "direct" and not set(names).isdisjoint(numbers[0].split(","))

    def _counted(self, visitor: tuple[str, str], page: Answer, numbers: list[str], now: float) -> Answer:
        most, rest = int((numbers or ["10"])[0]), float((numbers[1:] or ["5"])[0])
        if now < self._shut_until.get(visitor, 0.0):
            return FORBIDDEN
        visits = self._visits[visitor] = self._visits.get(visitor, 0) + 1
        if visits <= most:
            return page
        self._visits[visitor] = 0
        self._shut_until[visitor] = now + rest
        return Answer(429, "rate", "<html><title>Too Many Requests</title></html>", (f"Retry-After: {rest:g}",))


# --- the server -----------------------------------------------------------------------------------------------


class PageRequest(asyncio.Protocol):
    """One connection: requests one after the other, kept alive."""

    def __init__(self, gate: Gate, log: int) -> None:
        self._gate = gate
        self._log = log
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._proxy = str(transport.get_extra_info("peername")[0])

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            self._reply(head.decode("latin-1"))

    def _reply(self, head: str) -> None:
        start, *lines = head.split("\r\n")
        path = start.split(" ")[1]
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        host = dict(headers).get("host", "").partition(":")[0].lower()
        now = time.monotonic()
        answer = self._gate.answer(host, path, self._proxy, headers, now)
        hit = BlockedHit(
            at=now, host=host, path=path, status=answer.status, verdict=answer.verdict, proxy=self._proxy,
            through=kind_of_proxy(self._proxy), headers=headers,
        )  # fmt: skip
        os.write(self._log, msgspec.json.encode(hit) + b"\n")  # before the answer: what is known is written down
        if not answer.status:
            self._transport.abort()
            return
        body = answer.body.encode()
        first = (f"HTTP/1.1 {answer.status} {answer.verdict}", f"Content-Type: {answer.kind}", *answer.lines)
        self._transport.write("\r\n".join((*first, f"Content-Length: {len(body)}", "", "")).encode() + body)


async def serve(plan: Plan, log: str) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(sys.stdin.fileno(), stop.set)  # closed when the starter dies, however it dies
    gate, file = Gate(plan), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    server = await loop.create_server(lambda: PageRequest(gate, file), "127.0.0.1", 0, backlog=4096)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await stop.wait()
    server.close()


# --- for the tests --------------------------------------------------------------------------------------------


class World:
    """A running world. What it knows does not depend on any crawler."""

    def __init__(self, plan: Plan, port: int, log: Path) -> None:
        self.plan = plan
        self.port = port
        self.log = log

    def url(self, domain: str, number: int = 0) -> str:
        return f"http://{domain}:{self.port}/page/{number}"

    def urls(self) -> list[str]:
        """Every page of every site."""
        return [self.url(domain, number) for domain in self.plan.domains for number in range(self.plan.pages)]

    def truth(self) -> dict[str, dict[str, Any]]:
        """Every record that somebody can get, by sku, with its `url` and the `kind` of its site."""
        records = {}
        for domain, kind in self.plan.domains.items():
            for number in range(self.plan.pages) if kind not in NOBODY else ():
                record = record_of(domain, f"/page/{number}")
                records[record["sku"]] = {**record, "url": self.url(domain, number), "kind": kind.partition(":")[0]}
        return records

    def hits(self, *, host: str | None = None, verdict: str | None = None, robots: bool = False) -> list[BlockedHit]:
        """The log so far, oldest first; requests for robots.txt only when asked for."""
        hits = msgspec.json.Decoder(BlockedHit).decode_lines(whole_lines(self.log))
        return [
            hit
            for hit in hits
            if host in (None, hit.host) and verdict in (None, hit.verdict) and (robots or hit.verdict != "robots")
        ]


@contextmanager
def blocking_world(domains: Mapping[str, str], **plan: Any) -> Iterator[World]:
    """Run such a world for the time of the block. `plan` is pages= and body_bytes=."""
    for domain, kind in domains.items():
        if not domain.endswith(".localhost") or kind.partition(":")[0] not in KINDS:
            raise ValueError(f"{domain} = {kind}: names end in .localhost, kinds are {', '.join(KINDS)}")
    whole = Plan(domains=dict(domains), **plan)
    with tempfile.TemporaryDirectory(prefix="blocking-") as folder:
        log = Path(folder) / "hits.jsonl"
        log.touch()
        file = Path(folder) / "plan.json"
        file.write_bytes(msgspec.json.encode(whole))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.sites.blocking", "--plan", str(file), "--log", str(log)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"The world did not start (exit code {process.wait()}); see the messages above.")
            yield World(whole, json.loads(line)["port"], log)
        finally:
            process.stdin.close()  # the server ends with it
            process.wait(timeout=10)
            process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sites.blocking", description=__doc__)
    parser.add_argument("--plan", required=True, help="file with the plan as JSON")
    parser.add_argument("--log", required=True, help="file to which each request is appended as a JSON line")
    flags = parser.parse_args()
    plan = msgspec.json.decode(Path(flags.plan).read_bytes(), type=Plan)
    asyncio.run(serve(plan, flags.log))


if __name__ == "__main__":
    main()
