"""[browser]: the pool of browsers that a worker keeps for routes that render."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..units import Size


class Browser(msgspec.Struct, frozen=True, kw_only=True):
    executable: str = ""  # empty: Chromium of the system, else Playwright's own
    browsers: int = 1
    contexts: int = 4  # pages at once in each browser
    recycle_pages: int = 200  # a browser is replaced after so many pages
    recycle_memory: Size = Size(
        1024 * 1024 * 1024
    )  # or when its processes hold so much; at half as much again it is ended
    page_memory: Size = Size(768 * 1024 * 1024)  # a page that holds more is ended
    page_timeout: timedelta = timedelta(seconds=45)
    settle: timedelta = timedelta(milliseconds=500)  # how long the network must be quiet
    block: tuple[str, ...] = ("image", "media", "font")  # resource types that are not loaded
