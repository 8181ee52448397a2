"""`gossamer fetch` and `gossamer shell` against a real server on loopback, as a user sees them."""

from __future__ import annotations

import gzip
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gossamer.model.page import Headers, Snapshot
from gossamer.parse.page import Page
from gossamer.project.pages.fetch import text_of
from tests.services.threaded import in_thread
from tests.unit.commandline import on_a_terminal
from tests.unit.commandline import project as project
from tests.unit.crawled import SHOP, crawl_half

HOME = """<!doctype html><html><head><title>Lamps &amp; more</title>
<script type="application/ld+json">{"@type": "Shop", "name": "Lüx"}</script></head>
<body><nav><a href="/a">menu</a></nav><main><article><h1>Lamps</h1>
<p>A lamp is a thing that gives light, and this text is long enough to be the main content of a page.</p>
<p>Another paragraph tells more about lamps, their makers and the evenings they are made for.</p>
</article></main></body></html>"""

ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/": (200, {"Content-Type": "text/html; charset=utf-8"}, HOME.encode()),
    "/robots.txt": (200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /secret\n"),
    "/secret": (200, {"Content-Type": "text/plain"}, b"the secret"),
    "/old": (301, {"Location": "/older"}, b""),
    "/older": (302, {"Location": "/"}, b""),
    "/loop": (302, {"Location": "/loop"}, b""),
    "/inward": (302, {"Location": "http://127.0.0.2:8/"}, b""),
    "/to-file": (302, {"Location": "file:///etc/passwd"}, b""),
    "/binary": (200, {"Content-Type": "image/png"}, bytes(range(256))),
    "/packed": (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, gzip.compress(b"unpacked")),
    "/evil": (200, {"Content-Type": "text/plain", "X-Evil": "\x1b[2Jgone"}, b"ok"),
}


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status, headers, body = ANSWERS.get(self.path, (404, {"Content-Type": "text/plain"}, b"nothing here"))
        self.server.seen.append(self.path)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        told = {
            "method": self.command,
            "body": body.decode(),
            "headers": {k.lower(): v for k, v in self.headers.items()},
        }
        text = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_PUT = do_POST

    def log_message(self, *words: object) -> None:
        """The test asks `seen`."""


@pytest.fixture
def site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.seen = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    with in_thread(server):
        yield server


def test_fetch_prints_the_body_as_it_is_and_says_that_the_local_host_is_allowed(project, site):
    said = project.run("fetch", f"{site.url}/")

    assert (said.code, said.raw) == (0, HOME.encode())
    assert "127.0.0.1 is allowed because you named it" in said.err
    assert not (project.folder / "gossamer-data").exists()


def test_fetch_writes_binary_pages_byte_for_byte(project, site):
    assert project.run("fetch", f"{site.url}/binary").raw == bytes(range(256))
    said = project.run("fetch", f"{site.url}/binary", "-o", "x.png")
    assert said.raw == b""
    assert (project.folder / "x.png").read_bytes() == bytes(range(256))
    assert project.run("fetch", f"{site.url}/packed").raw == b"unpacked"


def test_headers_go_to_stderr_with_every_redirect(project, site):
    said = project.run("fetch", f"{site.url}/old", "--headers")

    assert said.raw == HOME.encode()
    lines = said.err.splitlines()
    assert [line for line in lines if "->" in line] == [
        f"301 Moved Permanently  -> {site.url}/older",
        f"302 Found  -> {site.url}/",
    ]
    assert any(line.startswith("200 OK  ") for line in lines)
    assert "Content-Type: text/html; charset=utf-8" in lines


def test_headers_of_a_hostile_server_cannot_steer_the_terminal(project, site):
    said = project.run("fetch", f"{site.url}/evil", "--headers")

    assert "\x1b" not in said.err


def test_fetch_gives_text_markdown_and_structured_data(project, site):
    text = project.run("fetch", f"{site.url}/", "--text").out
    markdown = project.run("fetch", f"{site.url}/", "--markdown").out

    assert "gives light" in text
    assert "<" not in text
    assert "menu" not in text
    assert "# Lamps" in markdown
    assert project.run("fetch", f"{site.url}/", "--json-ld").json == [{"@type": "Shop", "name": "Lüx"}]
    assert project.run("fetch", f"{site.url}/", "--text", "--markdown").code == 1


def test_what_robots_txt_forbids_is_not_fetched_unless_the_user_insists(project, site):
    refused = project.run("fetch", f"{site.url}/secret")

    assert (refused.code, refused.raw) == (1, b"")
    assert "robots.txt forbids" in refused.err
    assert "Disallow: /secret" in refused.err
    assert "/secret" not in site.seen
    assert project.run("fetch", f"{site.url}/secret", "--no-robots").raw == b"the secret"


def test_an_error_page_is_printed_and_the_exit_code_tells(project, site):
    said = project.run("fetch", f"{site.url}/nowhere")

    assert (said.code, said.raw) == (1, b"nothing here")
    assert "answered 404 Not Found" in said.err


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/loop", "redirects to"),
        ("/inward", "127.0.0.2 is a private or reserved address"),
        ("/to-file", "which cannot be crawled"),
    ],
)
def test_redirects_are_judged_hop_by_hop(project, site, path, answer):
    said = project.run("fetch", f"{site.url}{path}")

    assert (said.code, said.raw) == (1, b"")
    assert answer in said.err


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("lamps.example", "Did you mean https://lamps.example ?"),
        ("file:///etc/passwd", "only http and https"),
        ("http://no-such-name.invalid/", "no-such-name.invalid"),
        ("http://127.0.0.1:9/", "no connection"),
        ("http://10.255.255.1.nip.invalid:99999/", "is not a URL"),
    ],
)
def test_what_cannot_be_fetched_gets_a_line_and_no_traceback(project, url, answer):
    for verb in ("fetch", "shell"):
        said = project.run(verb, url)
        assert (said.code, said.raw) == (1, b"")
        assert answer in said.err.splitlines()[-1]
        assert "Traceback" not in said.err


def test_piped_code_sees_the_page_and_prints_like_a_prompt(project, site):
    code = """
page.css("h1::text").get()
for link in css("a"):
    print(link.attrib["href"])
x = 1
xpath("//title").text
"""

    said = project.run("shell", f"{site.url}/", stdin=code)

    assert said.code == 0
    assert said.lines == ["'Lamps'", "/a", "'Lamps & more'"]


def test_fetch_at_the_prompt_changes_the_page(project, site):
    said = project.run("shell", f"{site.url}/", stdin='_ = fetch("/packed")\npage.text\n')

    assert said.lines == ["'unpacked'"]


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ('css("h1[")', "BadSelector: The CSS selector 'h1['"),
        ("1/0", "ZeroDivisionError"),
        ("x = ", "SyntaxError"),
    ],
)
def test_an_error_in_piped_code_is_shown_without_our_own_frames(project, site, code, answer):
    said = project.run("shell", f"{site.url}/", stdin=code)

    assert said.code == 1
    assert answer in said.err
    assert "prompt.py" not in said.err


def test_the_shell_opens_files_and_archived_pages(project):
    project.write("page.html", HOME)
    said = project.run("shell", "page.html", "--url", "https://lamps.example/x/", stdin='page.urljoin("y")')
    assert said.lines == ["'https://lamps.example/x/y'"]

    project.fill(crawl_half)
    ref = project.run("dead", "show", f"{SHOP}/broken", "--json").json[0]["archive_ref"]
    assert project.run("shell", ref, stdin="page.url, css('h1').text").lines == [f"('{SHOP}/broken', 'Half a page')"]
    gone = project.run("shell", "2020-01-01/nobody-1.zst#0+9")
    assert (gone.code, gone.raw) == (1, b"")
    assert "There is no archived page" in gone.err


def test_a_file_that_is_not_there_is_said_not_to_be(project):
    said = project.run("shell", "missing.html")

    assert said.code == 1
    assert "There is no file with that name either" in said.err


def test_at_a_terminal_there_is_a_prompt_with_the_page(project, site):
    said = on_a_terminal(project.folder, "shell", f"{site.url}/", columns=100, typed="css('h1').text * 2\nexit()\n")

    assert "Lamps & more" in said
    assert "'LampsLamps'" in said


def test_a_binary_page_does_not_garble_the_terminal(project, site):
    said = on_a_terminal(project.folder, "fetch", f"{site.url}/binary", columns=100, code=1)

    assert "Write it to a file with -o FILE" in said
    assert "\x00" not in said


def test_a_new_project_crawls_at_once(project, site, monkeypatch):
    project.run("new", "lamps", "--url", f"{site.url}/")
    monkeypatch.chdir(project.folder / "lamps")

    said = project.run("crawl", "lamps", "--quiet", "--rate", "unlimited", "-o", "lamps.jsonl")

    assert said.code == 0
    (line,) = (project.folder / "lamps" / "lamps.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert (record["url"], record["title"], record["headline"]) == (f"{site.url}/", "Lamps & more", "Lamps")
    assert "gives light" in record["text"]
    assert "answered 404" in project.run("dead", "show", f"{site.url}/a").out


def test_fetch_sends_what_the_command_line_says(project, site):
    url = f"{site.url}/echo"
    form = json.loads(project.run("fetch", url, "--form", "a=1", "--form", "b=x y", "-H", "X-Own: 7").raw)
    assert (form["method"], form["body"], form["headers"]["x-own"]) == ("POST", "a=1&b=x+y", "7")
    told = json.loads(project.run("fetch", url, "-X", "PUT", "--json", '{"n": [1]}', "--auth", "ann:p:w").raw)
    assert (told["method"], told["body"]) == ("PUT", '{"n":[1]}')
    assert told["headers"]["authorization"] == "Basic YW5uOnA6dw=="
    assert json.loads(project.run("fetch", url, "-d", "as it is").raw)["body"] == "as it is"

    for words, flags in {
        "is not JSON": ("--json", "{"),
        "is not a header": ("-H", "nothing"),
        "more than one body": ("--json", "1", "-d", "x"),
        "belongs to the connection": ("-H", "Host: evil.example"),
        "not a single line of text": ("-H", "X: a\nb"),
    }.items():
        said = project.run("fetch", url, *flags)
        assert said.code != 0
        assert words in said.err
        assert "Traceback" not in said.err


def test_a_request_can_be_made_at_the_prompt(project, site):
    code = "fetch(Request(url='/echo', method='POST', json={'a': 1})); page.json()['body']"
    said = project.run("shell", f"{site.url}/", stdin=code)

    assert said.out.splitlines()[-1] == repr('{"a":1}')


def test_the_text_of_an_article_has_its_title_as_its_markdown_has():
    prose = "".join(f"<p>{'The river rose again in the night and nobody slept. ' * 6}</p>" for _ in range(6))
    body = f"<title>Floods</title><header>Menu</header><article><h1>Floods in the valley</h1>{prose}</article>".encode()
    snapshot = Snapshot(
        url="https://news.example/floods", requested_url="https://news.example/floods", status=200,
        headers=Headers([("Content-Type", "text/html; charset=utf-8")]), body=body, fetched_at=0.0,
    )  # fmt: skip
    page = Page(snapshot)
    assert text_of(page, markdown=True).startswith("# Floods in the valley\n")
    assert text_of(page).startswith("Floods in the valley\n\nThe river rose")


BUILT = """
from gossamer import Spider

class Built(Spider):
    def start(self):
        port = int("{port}")
        yield f"http://127.0.0.1:{written}/"

    def parse(self, page):
        yield {{"url": page.url}}
"""


@pytest.mark.parametrize("written", [True, False])
def test_a_port_that_start_computes_is_not_allowed_and_one_that_is_written_is(project, site, written: bool):
    text = BUILT.format(port=site.server_port, written=site.server_port if written else "{port}")
    project.write("spiders/built.py", text)

    said = project.run("crawl", "built")

    assert ("allowed with port 80 only" in said.err) is not written
    assert bool(site.seen) is written
