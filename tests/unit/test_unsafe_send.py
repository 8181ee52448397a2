"""A request that must not be sent twice: its note comes before it, and its fate decides whether it may be repeated."""

from __future__ import annotations

import pytest

from gossamer.crawl.unsafe_send import NotNoted, UnsafeSend
from gossamer.errors import BackendUnavailable, ConnectFailed, ConnectTimedOut, DnsFailed, TimedOut, Uncertain


class NoteBook:
    """Fulfils `Notes`: the lines that are in it, in their order."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.lines: list[str] = []
        self._failure = failure

    async def write(self) -> None:
        if self._failure is not None:
            raise self._failure
        self.lines.append("sent")

    async def withdraw(self) -> None:
        self.lines.append("withdrawn")


async def test_the_note_is_written_before_the_request_may_leave() -> None:
    notes = NoteBook()
    send = UnsafeSend(notes, repeats=False)
    gate = send.watch(None)
    assert (notes.lines, gate.is_out) == ([], False)

    await gate.enter()

    assert (notes.lines, gate.is_out) == (["sent"], True)


async def test_a_request_that_could_not_be_noted_is_not_out() -> None:
    send = UnsafeSend(NoteBook(NotNoted(BackendUnavailable("The store is away."))), repeats=False)

    with pytest.raises(NotNoted, match="noted before it is sent"):
        await send.watch(None).enter()

    assert not send.out
    assert send.may_repeat(TimedOut("No answer."))


async def test_a_note_is_taken_back_once_and_only_if_it_was_written() -> None:
    notes = NoteBook()
    send = UnsafeSend(notes, repeats=False)
    await send.withdraw()
    assert notes.lines == []
    await send.watch(None).enter()
    await send.withdraw()
    await send.withdraw()
    assert notes.lines == ["sent", "withdrawn"]


@pytest.mark.parametrize("failure", [ConnectFailed("no"), ConnectTimedOut("no"), DnsFailed("no")])
async def test_a_request_without_a_connection_may_be_repeated(failure: Exception) -> None:
    send = UnsafeSend(NoteBook(), repeats=False)
    await send.watch(None).enter()
    assert send.verdict(failure) is failure  # type: ignore[arg-type]


async def test_what_became_of_a_request_without_an_answer_is_uncertain_unless_it_may_be_repeated() -> None:
    failure = TimedOut("No answer.")
    for repeats, expected in ((False, Uncertain), (True, TimedOut)):
        send = UnsafeSend(NoteBook(), repeats=repeats)
        await send.watch(None).enter()
        assert send.may_repeat(failure) is repeats
        assert type(send.verdict(failure)) is expected
