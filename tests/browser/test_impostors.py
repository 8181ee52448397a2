"""Pages that would pass for another site: what is read belongs to the site that served it."""

from __future__ import annotations

import pytest

from .showing import OTHER, Show

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]

FORGED = "<h1 id=forged>Everything for 1 EUR</h1>"
BLOB = f"URL.createObjectURL(new Blob(['{FORGED}'], {{type: 'text/html'}}))"


@pytest.mark.long
async def test_a_navigation_that_is_begun_and_stopped_lends_no_name(show: Show) -> None:
    """Stopped between the arrival of the shop's answer and its showing: pages try out when that is, each as often as it
    may navigate."""
    show.site.show("/shop", "<p id=shop>shop</p>", "X-Shop: 1")
    shop = show.url("/shop", OTHER)
    for first in (1, 9, 17, 25, 33):
        tries = f"""
          const pause = ms => new Promise(done => setTimeout(done, ms));
          (async () => {{
            for (let ms = {first}; ms < {first + 8}; ms++) {{
              location = '{shop}?' + ms; await pause(ms); window.stop(); await pause(20)
            }}
            location = {BLOB}
          }})()"""
        url = show.page(f"<p id=own></p><script>{tries}</script>", path=f"/impostor/{first}")
        response = await show.get(url, wait_for="#forged, #shop")
        if response.url.startswith(shop):  # it was too late to stop it: this is the shop
            assert b"forged" not in response.body
            assert response.headers.get("x-shop") == "1"
        else:
            assert (response.url, response.headers.get("x-shop")) == (url, "")
            assert b"forged" in response.body
    assert show.site.seen("/shop"), "the attack did not get as far as the shop"


async def test_a_page_that_moves_on_is_read_with_the_address_and_headers_of_where_it_is(show: Show) -> None:
    show.site.show("/honest", "<p id=honest></p>", "X-Shop: 1")
    there = show.url("/honest", OTHER)
    response = await show.get(show.page(f"<script>location = '{there}'</script>", path="/mover"), wait_for="#honest")
    assert (response.url, response.headers.get("x-shop")) == (there, "1")
    assert b"honest" in response.body


async def test_a_blob_of_the_page_before_belongs_to_that_page(show: Show) -> None:
    url = show.page(f"<script>location = {BLOB}</script>", path="/maker")
    response = await show.get(url, wait_for="#forged")
    assert response.url == url
    assert b"forged" in response.body
