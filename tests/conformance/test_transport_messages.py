"""What a transport says when it fails: a user name and a password in an address are nobody's business."""

from __future__ import annotations

import pytest

from gossamer.errors import FetchFailed, FetchRefused
from tests.sites.hostile import HostileSite

from .transports import HASTY, Opener, get
from .transports import opened as opened
from .transports import site as site


@pytest.mark.parametrize("path", ["/silence", "/garbage", "/close-before-headers", "/wide-headers", "/bad-chunked"])
async def test_a_login_in_an_address_is_in_no_message(opened: Opener, site: HostileSite, path: str) -> None:
    url = site.url(path, host="ann:S3CRET@127.0.0.1")
    async with opened() as transport:
        with pytest.raises((FetchFailed, FetchRefused)) as caught:
            await get(transport, url, limits=HASTY)
    assert "S3CRET" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://ann:S3CRET@127.0.0.1:1/",
        "http://ann:S3CRET@127.0.0.1:99999/",
        "http://ann:S3CRET@shop.example\u00e9/",
        "http://ann:S3CRET@/",
        "ftp://ann:S3CRET@127.0.0.1/",
        "http://" + "a" * 150 + ":S3CRET" + "S3CRET" * 20 + "@127.0.0.1:1/",
        "http://ann@b:S3CRET@127.0.0.1:1/",
    ],
)
async def test_a_login_in_an_address_that_cannot_be_fetched_is_in_no_message(opened: Opener, url: str) -> None:
    async with opened() as transport:
        with pytest.raises((FetchFailed, FetchRefused)) as caught:
            await get(transport, url)
    assert "S3CRET" not in str(caught.value)
