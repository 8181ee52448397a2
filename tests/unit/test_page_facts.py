"""What a visit teaches about a page: it has changed when its records have, not with every byte."""

from __future__ import annotations

import msgspec
import pytest
import zstandard
from msgspec.structs import replace

from gossamer.crawl.page_facts import content_of, facts_of, links_of, observed, rhythm_of
from gossamer.errors import ParseFailed
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import PageFacts, Record
from gossamer.model.task import Request, Task

DAY = 86_400.0
FACTS = PageFacts(fingerprint=b"f" * 16, url="https://x.example/", job="j-1", fetched_at=DAY, status=200)


def record(key: str, content: bytes) -> Record:
    return Record(
        type="T", site="x.example", key=key, url="u", job="j", spider="s", data="{}", content_hash=content, scraped_at=0
    )


def test_the_content_is_that_of_the_records_whatever_their_order() -> None:
    one, two = record("1", b"a" * 16), record("2", b"b" * 16)
    assert content_of([one, two], b"body") == content_of([two, one], b"other body")
    assert content_of([one], b"body") != content_of([replace(one, content_hash=b"c" * 16)], b"body")
    assert content_of([], b"body") == b"body"


def test_changes_are_counted_from_visit_to_visit() -> None:
    first = observed(FACTS, None, b"one", watched=True)
    second = observed(replace(FACTS, fetched_at=2 * DAY), first, b"one", watched=True)
    third = observed(replace(FACTS, fetched_at=3 * DAY), second, b"two", watched=True)
    rhythm = rhythm_of(third)
    assert rhythm is not None
    assert (rhythm.checks, rhythm.changes, rhythm.changed) == (2, 1, 3 * DAY)


def test_a_job_that_does_not_watch_keeps_what_is_known() -> None:
    first = observed(FACTS, None, b"one", watched=True)
    second = observed(replace(FACTS, fetched_at=2 * DAY), first, b"two", watched=False)
    assert second.rhythm == first.rhythm
    assert rhythm_of(replace(first, rhythm='{"of": "another version"}')) is None


def test_records_of_other_code_are_not_compared() -> None:
    first = observed(replace(FACTS, parser="one", body_hash=b"b"), None, b"of one", watched=True)
    same = observed(replace(FACTS, fetched_at=2 * DAY, parser="two", body_hash=b"b"), first, b"of two", watched=True)
    other = observed(replace(FACTS, fetched_at=3 * DAY, parser="one", body_hash=b"c"), same, b"of one", watched=True)
    rhythms = [rhythm_of(facts) for facts in (same, other)]
    assert [(one.checks, one.changes, one.last) for one in rhythms if one] == [(1, 0, 2 * DAY), (1, 0, 3 * DAY)]


def test_a_change_that_the_sitemap_announced_is_dated() -> None:
    first = observed(FACTS, None, b"one", watched=True)
    second = observed(replace(FACTS, fetched_at=3 * DAY), first, b"two", watched=True, lastmod=2 * DAY)
    third = observed(replace(FACTS, fetched_at=4 * DAY), second, b"three", watched=True, lastmod=2 * DAY)
    rhythm = rhythm_of(third)
    assert rhythm is not None
    assert (rhythm.changes, rhythm.alarms, rhythm.false_alarms) == (2, 1, 0)


def test_links_are_kept_in_few_bytes_and_come_back_as_they_were() -> None:
    links = [Request(url=f"https://x.example/product/{n:06d}", kind="product") for n in range(60)]
    links.append(Request(url="https://x.example/search", method="POST", form={"q": "lamp"}, priority=3))
    task = Task(
        id=1, job="j-1", url="https://x.example/", fingerprint=b"f" * 16, site="x.example", kind="parse", priority=0,
        depth=0, attempt=0, max_attempts=3, created_at=0.0,
    )  # fmt: skip
    snapshot = Snapshot(
        url=task.url, requested_url=task.url, status=200, headers=Headers([("ETag", '"1"')]), body=b"x", fetched_at=DAY
    )
    facts = facts_of(task, snapshot, spider="s", parser_version="1", requests=links)
    assert len(facts.links) < 10 * len(links)
    assert links_of(facts) == [request.storable() for request in links]
    plain = [*links[:60], Request(url="https://x.example/", kind="parse")]
    few = facts_of(task, snapshot, spider="s", parser_version="1", requests=plain, links_only=True)
    assert len(few.links) < len(facts.links)
    assert links_of(few) == plain
    assert links_of(None) == links_of(FACTS) == []


def test_links_of_earlier_versions_are_read() -> None:
    links = [Request(url="https://x.example/a", kind="product")]
    assert links_of(replace(FACTS, links=msgspec.json.encode(links))) == links
    runs = [("product", ["https://x.example/a"])]
    assert links_of(replace(FACTS, links=zstandard.compress(msgspec.json.encode(runs)))) == links
    text = "https://x.example/lamps/<2<>> //x https://y.example/?u=https://x.example/lamps/4"
    short = links_of(replace(FACTS, links=zstandard.compress(msgspec.json.encode([("product", text)]))))
    assert [link.url for link in short] == [
        "https://x.example/lamps/2", "https://x.example/lamps/", "https://x.example/", "https://x.example/",
        "//x", "https://y.example/?u=https://x.example/lamps/4",
    ]  # fmt: skip


def test_links_that_claim_gigabytes_take_no_memory() -> None:
    claim = b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(ParseFailed, match="claim to unpack"):
        links_of(replace(FACTS, links=claim))
