"""A failure has one word: that of the errors, in attempts, in dead letters and in the table of docs/concepts.md."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gossamer import errors
from gossamer.crawl.journey import POISON
from gossamer.model.outcome import HELD_BACK_REASON
from gossamer.routing.block_signs import KINDS

from .manual import ROOT, quoted, read, rows_under

WITHOUT_AN_ERROR = {POISON, HELD_BACK_REASON, "internal-error", "unreadable"}
SAID_BY_MORE = {"network", "way", "refused", "blocked", "file"}  # bases: what is raised has a word that says more


def below(kind: type[errors.GossamerError]) -> Iterator[type[errors.GossamerError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from below(one)


def test_the_manual_has_every_reason_and_no_other() -> None:
    raised = {
        kind.reason for base in (errors.FetchFailed, errors.FetchRefused, errors.ParseFailed) for kind in below(base)
    }
    rows = rows_under(read(ROOT / "docs" / "concepts.md"), "reason", "the failure")
    known = {word for row in rows for word in quoted(row[0])}
    families = {word for word in known if word.startswith(("http-", "blocked-"))}

    assert known - families == (raised - SAID_BY_MORE) | WITHOUT_AN_ERROR | {"file-type", "file-size"}
    assert {word.removeprefix("blocked-") for word in families if word.startswith("blocked-")} <= set(KINDS)


@pytest.mark.parametrize("kind", ["ServerFailed", "RateLimited", "RefusedByProxies", "ClientError"])
def test_a_status_is_the_reason_of_its_failure(kind: str) -> None:
    assert getattr(errors, kind)("no", status=503).reason == "http-503"
