"""The doorkeeper: scope, depth, traps, and the memory that spares the frontier known links."""

from __future__ import annotations

from gossamer.frontier.admission import MEMORY, Admission, LinkScope
from gossamer.frontier.contract import Added
from gossamer.model.task import DropReason, Request
from gossamer.model.url import UrlRules

RULES = UrlRules(tracking=["utm_*"])


def requests(*urls: str, **fields) -> list[Request]:
    return [Request(url=url, **fields) for url in urls]


def test_links_outside_the_scope_are_dropped_with_that_reason():
    admission = Admission(LinkScope(sites={"a.test", "docs.b.test"}), RULES)
    judged = admission.judge(
        requests("https://www.a.test/", "https://docs.b.test/", "https://b.test/", "https://evila.test/")
    )
    assert [one.dropped for one in judged.candidates] == [None, None, DropReason.SCOPE, DropReason.SCOPE]


def test_depth_and_traps_are_dropped_with_their_reasons():
    admission = Admission(LinkScope(max_depth=2, max_url_length=60), RULES)
    deep = admission.judge(requests("https://a.test/x"), depth=3)
    trap = admission.judge(requests("https://a.test/a/a/a/a", "https://a.test/" + "x" * 60))
    assert deep.candidates[0].dropped is DropReason.DEPTH
    assert {one.dropped for one in trap.candidates} == {DropReason.TRAP}


def test_links_without_a_priority_inherit_that_of_their_page():
    admission = Admission(LinkScope(), RULES)
    judged = admission.judge([*requests("https://a.test/1"), *requests("https://a.test/2", priority=9)], priority=4)
    assert [one.priority for one in judged.candidates] == [4, 9]


def test_the_same_page_twice_on_one_page_is_a_duplicate():
    judged = Admission(LinkScope(), RULES).judge(
        requests("https://a.test/", "https://a.test/#x", "https://a.test/?utm_a=1")
    )
    assert (len(judged.candidates), judged.duplicates) == (1, 2)


def test_what_the_frontier_confirmed_is_a_duplicate_from_then_on_and_not_before():
    admission = Admission(LinkScope(), RULES)
    first = admission.judge(requests("https://a.test/1"))
    assert len(admission.judge(requests("https://a.test/1")).candidates) == 1
    admission.confirm(first, Added(queued=1))
    again = admission.judge(requests("https://a.test/1"))
    assert (len(again.candidates), again.duplicates) == (0, 1)
    assert len(admission.judge(requests("https://a.test/1", force=True)).candidates) == 1
    mixed = admission.judge(requests("https://a.test/1", "https://a.test/2", "https://a.test/2"), links_only=True)
    assert ([one.url for one in mixed.candidates], mixed.duplicates) == (["https://a.test/2"], 2)


def test_what_was_dropped_for_depth_or_for_want_of_room_is_offered_again():
    admission = Admission(LinkScope(max_depth=1), RULES)
    deep = admission.judge(requests("https://a.test/deep"), depth=2)
    admission.confirm(deep, Added(dropped=1))
    full = admission.judge(requests("https://a.test/full"), depth=1)
    admission.confirm(full, Added(dropped=1))
    assert len(admission.judge(requests("https://a.test/deep", "https://a.test/full"), depth=1).candidates) == 2


def test_with_a_dedup_window_nothing_is_taken_for_known():
    admission = Admission(LinkScope(), RULES, remember_known=False)
    admission.confirm(admission.judge(requests("https://a.test/1")), Added(queued=1))
    assert len(admission.judge(requests("https://a.test/1")).candidates) == 1


def test_the_memory_is_bounded():
    admission = Admission(LinkScope(), RULES)
    for start in range(0, MEMORY + 5000, 5000):
        judged = admission.judge(requests(*(f"https://a.test/{n}" for n in range(start, start + 5000))))
        admission.confirm(judged, Added(queued=5000))
    assert len(admission._known) == MEMORY


def test_what_is_no_address_is_dropped_as_such_on_the_site_it_was_found_on():
    judged = Admission(LinkScope(), RULES).judge(requests("javascript:void(0)", "https://a.test/"), site="a.test")
    assert [(one.url, one.dropped, one.site) for one in judged.candidates] == [
        ("javascript:void(0)", DropReason.INVALID, "a.test"), ("https://a.test/", None, "a.test"),
    ]  # fmt: skip


def test_a_host_name_that_no_dns_can_hold_is_no_url():
    judged = Admission(LinkScope(sites=None), UrlRules()).judge(requests(f"https://{'a' * 300}/"))
    assert [one.dropped for one in judged.candidates] == [DropReason.INVALID]
