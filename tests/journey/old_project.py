"""A project as an earlier version of Gossamer left it: one finished crawl, and a second one that was stopped half-way.

`python -m tests.journey.old_project FILE` makes one with the version at hand and packs it. The shop has a name that
does not resolve (shop.test) and is reached through a proxy pool, so that its URLs, and with them the fingerprints in
the files, do not depend on a free port. Until a version is released, and its project packed as files/project.tar.xz,
the version at hand makes it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep

from tests.patience import PATIENCE, poll_until
from tests.services.threaded import in_thread

PACKED = Path(__file__).with_name("files") / "project.tar.xz"
PRODUCTS = 30
STOPPED_AFTER = 15  # requests of the second crawl

SPIDER = """
from gossamer import Item, Page, Spider


class Lamp(Item, key="sku"):
    sku: str
    price: int


class Lamps(Spider):
    name = "lamps"
    start_urls = ["http://shop.test/"]

    def parse(self, page: Page):
        yield from page.follow_all("a.lamp", self.lamp)

    def lamp(self, page: Page):
        yield Lamp(sku=page.css("h1::text").get(), price=int(page.css("b::text").get()))
"""

SETTINGS = """
project = "lamps"

[politeness]
rate = "unlimited"
concurrency = 1

[fetch]
allow_private = true

[router]
ladder = ["proxied"]

[routes.proxied]
pool = "shop"

[proxies.shop]
urls = ["{proxy}"]
allow_private = true
"""


class LampShop:
    """A shop behind a proxy: answers requests for `http://shop.test/...` and writes down their paths."""

    def __init__(self) -> None:
        self.hits: list[str] = []
        self.raise_of_prices = 0
        self.pause = 0.0
        shop = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.removeprefix("http://shop.test")
                shop.hits.append(path)
                sleep(shop.pause)
                status, text = shop.page(path)
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.proxy = f"http://127.0.0.1:{self._server.server_port}"

    def page(self, path: str) -> tuple[int, str]:
        if path == "/":
            links = "".join(f'<a class="lamp" href="/lamp/{n}">{n}</a>' for n in range(1, PRODUCTS + 1))
            return 200, f'<h1>Lamps</h1>{links}<a class="lamp" href="/broken">broken</a>'
        if path.startswith("/lamp/"):
            number = int(path.removeprefix("/lamp/"))
            return 200, f"<h1>L-{number}</h1><b>{number * 10 + self.raise_of_prices}</b>"
        return 404, "<h1>Not found</h1>"

    @contextmanager
    def open(self) -> Iterator[LampShop]:
        with in_thread(self._server):
            yield self


def write_settings(folder: Path, shop: LampShop) -> None:
    (folder / "gossamer.toml").write_text(SETTINGS.format(proxy=shop.proxy))


def gossamer(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "gossamer", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def unpack(folder: Path) -> None:
    """Fill the folder with the project of the last release."""
    if not PACKED.exists():
        make(folder)
        return
    with tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data")


def make(folder: Path) -> None:
    """Fill the folder with a project that this version leaves behind."""
    (folder / "spiders").mkdir()
    (folder / "spiders" / "lamps.py").write_text(SPIDER)
    with LampShop().open() as shop:
        write_settings(folder, shop)
        done = gossamer(folder, "crawl", "lamps", "--quiet")
        assert done.returncode == 0, done.stderr
        done = gossamer(folder, "schedule", "add", "nightly", "--spider", "lamps", "--cron", "0 3 * * *")
        assert done.returncode == 0, done.stderr
        shop.raise_of_prices, shop.pause = 1, 0.2
        shop.hits.clear()
        crawl = subprocess.Popen([sys.executable, "-m", "gossamer", "crawl", "lamps", "--quiet"], cwd=folder)
        poll_until(lambda: len(shop.hits) >= STOPPED_AFTER or crawl.poll() is not None)
        assert crawl.poll() is None
        crawl.send_signal(signal.SIGINT)
        assert crawl.wait(60) == 130


def pack(file: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        with tarfile.open(file, "w:xz") as packed:
            for part in ("spiders", "gossamer-data"):
                packed.add(folder / part, part)


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
