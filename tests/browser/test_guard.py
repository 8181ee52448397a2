"""Nothing that a page does reaches an address that was not allowed. The canary's own log is the judge."""

from __future__ import annotations

import pytest

from gossamer.errors import AddressRefused
from tests.sites.rendered import MOVES, WAYS, attempts

from .showing import CANARY, OTHER, Show

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]


async def test_the_ways_to_the_canary_lead_somewhere_when_they_are_allowed(show: Show) -> None:
    """Else the next test would prove nothing: the same page, with an address that is allowed."""
    url = show.page(f"<p id=here>here</p>{attempts(show.url('/probe', OTHER))}")
    await show.get(url, block=(), wait=0.5)
    tried = {seen.path.partition("?")[2] for seen in show.site.seen("/probe")}
    assert set(WAYS) <= tried


async def test_no_way_leads_to_the_canary(show: Show) -> None:
    response = await show.get(show.url("/tries"), block=(), wait=0.5)
    assert b'id="here"' in response.body
    assert f"refused: {CANARY}:{show.canary.port}" in response.note
    assert (show.canary.connections, show.canary.log) == (0, [])


@pytest.mark.parametrize("path", MOVES)
async def test_a_page_that_moves_to_the_canary_is_refused(show: Show, path: str) -> None:
    with pytest.raises(AddressRefused, match=CANARY):
        await show.get(show.url(path), wait=0.5)
    assert (show.canary.connections, show.canary.log) == (0, [])


async def test_a_redirect_to_the_canary_is_returned_and_not_followed(show: Show) -> None:
    response = await show.get(show.url("/to-canary"))
    assert (response.status, CANARY in response.headers.get("location")) == (302, True)
    assert show.canary.connections == 0


async def test_the_canary_itself_is_refused_by_name_and_by_number(show: Show) -> None:
    for host in (CANARY, f"{CANARY}.", "127.0.0.1", "[::1]", "2130706433", "localhost"):
        with pytest.raises(AddressRefused):
            await show.get(show.canary.url("/", host))
    assert show.canary.connections == 0
