"""Forms and what Chromium sends for them (forms.json). tests/browser checks it in Chromium, tests/unit in Gossamer.

A case is a page, what a visitor does there (`script` in the browser; `values` and `press` with us), and what is sent
then: method, path with query, content type and body, where a boundary is written as B and bytes as Latin-1.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

SCRIPTS = {
    "submit": "document.querySelector('form').submit()",  # no button is pressed
    "click": "document.querySelector('#go').click()",
}
ENTER = "enter"  # in place of a script: the Enter key in the field #here
PAGE = "/dir/page?old=1"  # where the forms are shown


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    html: str
    sent: str
    script: str = "submit"
    values: dict[str, Any] = {}
    press: Any = False
    charset: str = "utf-8"

    @property
    def source(self) -> bytes:
        return f"<!doctype html><title>Form</title>{self.html}".encode(self.charset, "xmlcharrefreplace")


CASES = msgspec.json.decode((Path(__file__).parent / "forms.json").read_bytes(), type=list[Case])


def told(method: str, target: str, content_type: str, body: bytes) -> str:
    """What was sent, in one text."""
    boundary = re.search(r"boundary=(\S+)", content_type)
    text = body.decode("latin-1")
    if boundary:
        content_type = content_type.replace(boundary[1], "B")
        text = text.replace(boundary[1], "B")
    kind = "" if content_type in ("", "application/x-www-form-urlencoded") else f" [{content_type}]"
    return f"{method} {target}{kind}" + (f" {text}" if method == "POST" else "")
