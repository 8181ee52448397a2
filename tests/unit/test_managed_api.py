"""What a vendor is told about a page, and what it is not."""

from __future__ import annotations

import pytest

from gossamer.errors import FetchFailed, FetchRefused
from tests.services.vendors import get_vendor, job_vendor
from tests.unit.managed import BATCH, SITE, exchange, transport_to

PRIVATE = SITE.replace("://", "://ann:pass%40w0rd@")


@pytest.mark.parametrize("mode", ["", 'mode = "async"\n', BATCH])
async def test_a_user_name_and_password_are_not_told_to_the_vendor(mode: str) -> None:
    async with job_vendor() as server, transport_to(server, mode) as transport:
        server.show(f"{SITE}/a?mail=me@home")
        response = await transport.fetch(exchange(f"{PRIVATE}/a?mail=me@home#x"))
    assert response.url == f"{SITE}/a?mail=me@home"
    assert all("ann" not in repr(asked) and "w0rd" not in repr(asked) for asked in server.log)


async def test_a_user_name_and_password_are_not_told_in_a_query() -> None:
    async with get_vendor() as server, transport_to(server) as transport:
        server.show(f"{SITE}/")
        response = await transport.fetch(exchange(f"{PRIVATE}/"))
    assert (response.url, server.log[0].query["url"]) == (f"{SITE}/", f"{SITE}/")


async def test_a_final_address_with_a_user_name_loses_it() -> None:
    async with get_vendor() as server, transport_to(server) as transport:
        url = server.show(f"{SITE}/", sa_final_url=f"{PRIVATE}/last")
        assert (await transport.fetch(exchange(url))).url == f"{SITE}/last"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://ann:w0rd@shop.localhost/",
        "http://ann:w0rd@shop.localhost:port/",
        "http://ann:w0rd@127.0.0.1/",
        "http:\\\\ann:w0rd@10.0.0.1\\",
        f"{PRIVATE}/none",
    ],
)
async def test_no_error_repeats_a_user_name_and_password(url: str) -> None:
    async with job_vendor() as server, transport_to(server) as transport:
        server.fails[f"{SITE}/none"] = "no such page"
        with pytest.raises((FetchRefused, FetchFailed)) as caught:
            await transport.fetch(exchange(url))
    error: BaseException | None = caught.value
    while error is not None:
        assert "ann" not in repr(error)
        assert "w0rd" not in repr(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
