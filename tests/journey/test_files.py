"""Files that a spider asks for come whole, go to the archive, and are told of by records."""

from __future__ import annotations

import gzip
from hashlib import sha256

import msgspec
import pytest

from gossamer import File, Item, Page, Spider
from gossamer.model.file import safe_file_name
from gossamer.project.dead_letters.story import story_of
from gossamer.project.records.export import export_records
from gossamer.project.records.records import RecordFilter
from gossamer.project.upkeep.move import backup, copy, move, restore
from tests.journey.crawling import crawled, look, settings_for
from tests.services.proxies import http_proxy, socks_proxy
from tests.sites.downloads import Content, download_site

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 200
MB = 1024 * 1024


class Thing(Item, key="url"):
    name: str
    image: File | None = None


class Things(Spider):
    def __init__(self, url: str, **options: object) -> None:
        self.start_urls = [url]
        self.options = options

    def parse(self, page: Page):
        for image in page.css("img"):
            yield Thing(url=page.url, name="thing", image=page.file(image, **self.options))
        for link in page.css("a"):
            yield page.download(link, **self.options)


def for_files(folder, **flags):
    return settings_for(folder, fetch__allow_hosts=["127.0.0.1"], **flags)


def files_of(after):
    return {record.data["url"]: record.data for record in after.records if record.type == "File"}


async def content_of(read, sha):
    async def question(project):
        return b"".join([piece async for piece in project.archive.read_file(sha)])

    return await look(read, question)


async def test_files_go_to_the_archive_once_for_each_content_and_a_record_tells_of_each(tmp_path):
    async with download_site() as site:
        url = site.show("/", '<img src="/a.png"><a href="/b.png?utm_source=x">b</a><a href="/a.png">as a page too</a>')
        site.shown["/a.png"] = Content(body=PNG, type="image/png")
        site.shown["/b.png?utm_source=x"] = Content(
            body=PNG, headers={"Content-Disposition": 'attachment; filename="../../etc/best picture.png"'}
        )
        read = for_files(tmp_path, crawl__depth=0)

        after = await crawled(Things(url), read)

        files = files_of(after)
        a, b = files[site.url("/a.png")], files[site.url("/b.png?utm_source=x")]
        assert a["sha256"] == b["sha256"] == sha256(PNG).hexdigest()
        assert (a["size"], a["type"], a["name"], a["page"]) == (len(PNG), "image/png", "a.png", url)
        assert (b["type"], b["name"]) == ("image/png", "best picture.png")
        assert await content_of(read, a["sha256"]) == PNG
        kept = [path for path in (tmp_path / "gossamer-data/archive/files").rglob("*") if path.is_file()]
        assert [path.name for path in kept] == [a["sha256"]]
        assert after.record(url)["image"] == {"kind": "file", "url": site.url("/a.png")}
        assert [one.status for one in site.asked("/a.png")] == [200]
        after.assert_adds_up()

        again = await crawled(Things(url), read, fresh=True)

        assert [one.status for one in site.asked("/a.png")] == [200, 304]
        assert files_of(again)[site.url("/a.png")]["sha256"] == a["sha256"]
        assert not [*(tmp_path / "gossamer-data/parts").iterdir()]


async def test_a_download_that_is_cut_again_and_again_is_resumed_where_it_ended(tmp_path):
    async with download_site() as site:
        site.shown["/big"] = big = Content(size=20 * MB + 77, cut=3 * MB)
        url = site.show("/", '<a href="/big">')

        after = await crawled(Things(url), for_files(tmp_path))

        assert files_of(after)[site.url("/big")]["sha256"] == big.sha256
        asked = site.asked("/big")
        assert [one.status for one in asked] == [200] + [206] * 6
        assert [one.begins for one in asked] == [n * 3 * MB for n in range(7)]
        assert all(one.headers["if-range"] == '"v1"' for one in asked[1:])


@pytest.mark.parametrize("ranges", [False, True], ids=["no ranges", "changed meanwhile"])
async def test_a_file_that_cannot_be_resumed_is_fetched_from_the_start(tmp_path, ranges):
    async with download_site() as site:
        site.shown["/big"] = big = Content(size=5 * MB, cut=2 * MB, ranges=ranges)
        url = site.show("/", '<a href="/big">')
        answer = site._answer

        async def mended(reader, writer):
            if site.asked("/big"):
                big.cut, big.etag, big.seed = None, '"v2"', 9
            return await answer(reader, writer)

        site._answer = mended

        after = await crawled(Things(url), for_files(tmp_path))

        assert files_of(after)[site.url("/big")]["sha256"] == big.sha256
        assert [one.status for one in site.asked("/big")] == [200, 200]


async def test_parts_of_two_versions_are_not_put_together_where_a_server_does_not_heed_if_range(tmp_path):
    async with download_site() as site:
        site.shown["/big"] = big = Content(size=5 * MB, cut=2 * MB, careless=True)
        url = site.show("/", '<a href="/big">')
        answer = site._answer

        async def changed(reader, writer):
            if site.asked("/big"):
                big.cut, big.etag, big.seed = None, '"v2"', 9
            return await answer(reader, writer)

        site._answer = changed

        after = await crawled(Things(url), for_files(tmp_path, retry__base="10ms"))

        assert files_of(after)[site.url("/big")]["sha256"] == big.sha256
        assert [one.status for one in site.asked("/big")] == [200, 206, 200]


async def test_what_is_not_the_file_that_was_asked_for_is_refused(tmp_path):
    async with download_site() as site:
        site.shown["/page.png"] = Content(body=b"<html><h1>Please log in</h1></html>" + b" " * 600, type="image/png")
        site.shown["/text.txt"] = Content(body=b"words", type="text/plain")
        site.shown["/wall.png"] = Content(body=b"<html><h1>A page</h1><p>of words</p></html>", type="text/html")
        site.shown["/large.png"] = Content(body=PNG * 20, type="image/png")
        site.shown["/packed.png"] = Content(body=PNG, type="image/png", etag="")
        paths = ["/page.png", "/text.txt", "/wall.png", "/large.png", "/missing.png"]
        url = site.show("/", "".join(f'<a href="{path}">' for path in [*paths, "/packed.png"]))

        after = await crawled(Things(url, types=["image/*"], max_size=10_000), for_files(tmp_path))

        fates = {path: after.letters[site.url(path)].reason for path in paths}
        assert fates == {
            "/page.png": "file-type",
            "/text.txt": "file-type",
            "/wall.png": "file-type",
            "/large.png": "file-size",
            "/missing.png": "http-404",
        }
        assert set(files_of(after)) == {site.url("/packed.png")}
        assert "the request asked for image/*" in after.letters[site.url("/text.txt")].message
        assert not [*(tmp_path / "gossamer-data/parts").iterdir()]


async def test_a_file_that_is_elsewhere_is_known_by_both_addresses(tmp_path):
    async with download_site() as site:
        site.shown["/old"] = Content(status=302, etag="", headers={"Location": "/new"})
        site.shown["/new"] = Content(body=PNG, type="image/png")
        url = site.show("/", '<img src="/old">')

        files = files_of(await crawled(Things(url), for_files(tmp_path)))

        assert files[site.url("/old")]["location"] == site.url("/new")
        assert files[site.url("/new")]["sha256"] == sha256(PNG).hexdigest()


async def test_an_export_joins_items_with_their_files_and_writes_them_under_safe_names(tmp_path):
    evil = 'attachment; filename="..\\\\..//.profile\n"'.replace("\n", "")
    async with download_site() as site:
        site.shown["/old"] = Content(status=302, etag="", headers={"Location": "/new"})
        site.shown["/new"] = Content(body=PNG, type="image/png", headers={"Content-Disposition": evil})
        url = site.show("/", '<img src="/old">')
        read = for_files(tmp_path)
        await crawled(Things(url), read)
    folder = tmp_path / "out"

    async def question(project):
        done = await export_records(
            project, RecordFilter(type="Thing"), str(tmp_path / "things.jsonl"), files=folder / "pictures"
        )
        await export_records(project, RecordFilter(), str(tmp_path / "things.parquet"))
        return done

    done = await look(read, question)

    (line,) = (tmp_path / "things.jsonl").read_text().splitlines()
    image = msgspec.json.decode(line)["image"]
    sha = sha256(PNG).hexdigest()
    assert image == {
        "kind": "file", "url": site.url("/old"), "sha256": sha, "size": len(PNG), "type": "image/png",
        "name": "profile", "path": f"profile-{sha[:16]}",
    }  # fmt: skip
    assert (done.files, done.lost_files) == (1, 0)
    assert [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()] == [
        f"pictures/{image['path']}"
    ]
    assert (folder / "pictures" / image["path"]).read_bytes() == PNG


class Quoting(Spider):
    """Yields what a page says, as it stands."""

    def __init__(self, url: str) -> None:
        self.start_urls = [url]

    def parse(self, page: Page):
        yield {"url": page.url, "said": page.json()}
        yield page.download("/secret.png")


async def test_a_page_that_speaks_of_files_names_neither_paths_nor_files_of_others(tmp_path):
    secret = sha256(PNG).hexdigest()
    said = [
        {"kind": "file", "url": "https://evil.example/1", "sha256": "/../../../../etc/x", "name": "a", "size": 1},
        {"kind": "file", "url": "https://evil.example/2", "sha256": secret, "name": "mine.png", "path": "/etc/passwd"},
        {"kind": "file", "url": "https://evil.example/3", "sha256": {"a": 1}, "name": 7, "size": "x"},
        {"kind": "file", "url": "no address", "location": 5},
    ]
    async with download_site() as site:
        site.shown["/secret.png"] = Content(body=PNG, type="image/png")
        url = site.show("/", msgspec.json.encode(said).decode())
        read = for_files(tmp_path)
        await crawled(Quoting(url), read)
    folder = tmp_path / "out"

    async def question(project):
        await export_records(project, RecordFilter(), str(tmp_path / "all.jsonl"), files=folder)

    await look(read, question)

    lines = [msgspec.json.decode(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    (quoted,) = [line["said"] for line in lines if "said" in line]
    assert [set(one) for one in quoted] == [{"kind", "url"}] * 4
    assert [path.name for path in folder.rglob("*")] == [f"secret-{secret[:16]}.png"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("../../etc/passwd", "passwd"), ("..", "file"), ("", "file"), ("C:\\boot.ini", "boot.ini"),
        ("a\x00b\n.png", "a_b_.png"), ("con.txt", "_con.txt"), (".bashrc", "bashrc"), ("x" * 500 + ".tar.gz", None),
        ("größe 1.pdf", "größe 1.pdf"), ("\ud800.png", None), ("-rf", "-rf"),
    ],
)  # fmt: skip
def test_the_name_of_a_file_is_safe_in_any_folder(text, name):
    safe = safe_file_name(text)
    assert name is None or safe == name
    assert 0 < len(safe) <= 120
    assert not set(safe) & set("/\\\x00\n")
    assert not safe.startswith(".")
    safe.encode()


def by_route(folder, route, extra=""):
    (folder / "gossamer.toml").write_text(
        f'[fetch]\nallow_hosts = ["127.0.0.1"]\n[router]\nladder = ["way"]\n[routes.way]\n{route}\n{extra}'
    )
    return settings_for(folder)


async def test_a_download_through_proxies_is_resumed_where_it_ended(tmp_path):
    with http_proxy() as one, socks_proxy() as two:
        async with download_site() as site:
            site.shown["/big"] = big = Content(size=9 * MB, cut=4 * MB)
            url = site.show("/", '<a href="/big">')
            pool = f'[proxies.p]\nurls = ["{one.url}", "{two.url}"]\nallow_private = true\ncooldown = "10ms"\n'

            after = await crawled(Things(url), by_route(tmp_path, 'pool = "p"', pool))

    assert files_of(after)[site.url("/big")]["sha256"] == big.sha256
    asked = site.asked("/big")
    assert [one.status for one in asked] == [200, 206, 206]
    assert all(4 * n * MB - MB <= one.begins <= 4 * n * MB for n, one in enumerate(asked))
    assert one.passages
    assert two.passages


async def test_a_route_that_does_not_stream_takes_files_up_to_the_limit_of_pages(tmp_path):
    pytest.importorskip("wreq")
    async with download_site() as site:
        site.shown["/small"] = small = Content(size=MB // 2)
        site.shown["/big"] = Content(size=2 * MB)
        url = site.show("/", '<a href="/small"><a href="/big">')

        after = await crawled(Things(url), by_route(tmp_path, 'transport = "profile"\nprofile = "chrome"'))

        assert files_of(after)[site.url("/small")]["sha256"] == small.sha256
        letter = after.letters[site.url("/big")]
        assert letter.reason == "file-size"
        assert "longer than fetch.max_body" in letter.message


async def test_files_are_in_the_story_of_their_address_and_go_along_with_the_archive(tmp_path, monkeypatch):
    async with download_site() as site:
        site.shown["/a.png"] = Content(body=PNG, type="image/png")
        url = site.show("/", '<img src="/a.png">')
        read = for_files(tmp_path)
        await crawled(Things(url), read)

    story = await look(read, lambda project: story_of(project, site.url("/a.png")))
    assert [one.outcome for one in story.attempts] == ["done"]
    assert [one.state for one in story.jobs] == ["done"]

    target = msgspec.structs.replace(read, archive=f"folder:///{tmp_path / 'elsewhere'}")
    report = await move(read, target, ["archive"])

    assert not report.problems
    assert await content_of(target, sha256(PNG).hexdigest()) == PNG

    # and with a backup, in pieces
    monkeypatch.setattr(copy, "PIECE", 5)
    await backup(read, tmp_path / "files.backup")
    places = {"state": "sqlite:///new.db", "records": "sqlite:///new-records.db", "archive": "folder:///new"}
    there = msgspec.structs.replace(read, **places)
    _, report = await restore(there, tmp_path / "files.backup")
    assert not report.problems
    assert await content_of(there, sha256(PNG).hexdigest()) == PNG


async def test_a_packed_body_is_unpacked_on_the_way_within_the_bound_and_a_packed_file_is_left_alone(tmp_path):
    text = b"a line of text\n" * 5_000
    packed = {"Content-Encoding": "gzip"}
    async with download_site() as site:
        site.shown["/text"] = Content(body=gzip.compress(text), type="text/csv", headers=packed)
        site.shown["/bomb"] = Content(body=gzip.compress(bytes(50 * MB)), type="text/csv", headers=packed)
        site.shown["/cut"] = Content(body=gzip.compress(text)[:-20], type="text/csv", headers=packed)
        site.shown["/x.tgz"] = tgz = Content(body=gzip.compress(text), type="application/x-gzip", headers=packed)
        url = site.show("/", "".join(f'<a href="{path}">' for path in ("/text", "/bomb", "/cut", "/x.tgz")))

        after = await crawled(Things(url, max_size=MB), for_files(tmp_path))

        files = files_of(after)
        assert files[site.url("/text")]["sha256"] == sha256(text).hexdigest()
        assert files[site.url("/x.tgz")]["sha256"] == tgz.sha256
        assert after.letters[site.url("/bomb")].reason == "file-size"
        assert after.letters[site.url("/cut")].reason == "dropped-connection"
        assert not [*(tmp_path / "gossamer-data/parts").iterdir()]
