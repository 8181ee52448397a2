"""Reports about proxies that wait for the state: those that say the same are one, and nothing they said is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossamer.model.route import ProxyOutcome
from gossamer.routing.proxies.contract import ProxyReport
from gossamer.routing.proxies.outbox import Outbox

reports = st.builds(
    ProxyReport,
    proxy=st.just("dc1"),
    outcome=st.sampled_from([ProxyOutcome.OK, ProxyOutcome.FAILED]),
    times=st.integers(0, 5),
    seconds=st.integers(0, 8).map(float),
    bytes=st.integers(0, 100),
    credits=st.integers(0, 9).map(float),
    words=st.sampled_from(["", "timed out", "refused the connection"]),
)


@given(st.lists(reports, max_size=12))
def test_uses_are_counted_once_and_the_last_words_stay(said: list[ProxyReport]) -> None:
    outbox = Outbox()
    for report in said:
        outbox.report("pool", report)
    waiting = list(outbox.waiting("pool"))
    for outcome in ProxyOutcome:
        those = [one for one in said if one.outcome is outcome]
        kept = [one for one in waiting if one.outcome is outcome]
        for count in ("times", "bytes", "credits"):
            assert sum(getattr(one, count) for one in kept) == sum(getattr(one, count) for one in those)
    # in turns of the same outcome, each with the last words that were said in it
    turns: list[list[ProxyReport]] = []
    for one in said:
        if not turns or turns[-1][-1].outcome is not one.outcome:
            turns.append([])
        turns[-1].append(one)
    assert [one.outcome for one in waiting] == [turn[0].outcome for turn in turns]
    assert [one.words for one in waiting] == [
        next((one.words for one in reversed(turn) if one.words), "") for turn in turns
    ]
