"""What pages say cannot act on a terminal: neither by escapes nor by characters that turn the writing round."""

from __future__ import annotations

import asyncio
import io
import json
import sys

import pytest

from gossamer.cli.layout import print_json, write_bytes
from gossamer.clock import VirtualClock
from gossamer.model.events import Trouble
from gossamer.monitor.logs import JsonLog
from gossamer.store.export.destination import StandardOutput

ATTACK = "a\x1b]0;owned\x07b\x9b2Jc\u202ed\x7f"
HARMFUL = ("\x1b", "\x07", "\x9b", "\u202e", "\x7f")


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True

    @property
    def written(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined]  # it is a BytesIO


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard output from now on. Not a fixture: between the phases of a test pytest puts back its own."""
    made = Terminal(io.BytesIO(), encoding="utf-8", newline="")
    monkeypatch.setattr(sys, "stdout", made)
    return made


def harm(text: str) -> list[str]:
    return [sign for sign in HARMFUL if sign in text]


def test_a_page_that_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    write_bytes(f"<p>\n\t{ATTACK}\xff".encode())
    assert harm(terminal.written) == []
    assert terminal.written.startswith("<p>\n    a\\x1b]0;owned")


def test_json_that_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    print_json({"title": ATTACK})
    assert harm(terminal.written) == []
    assert "owned" in terminal.written


def test_an_export_to_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)

    async def export() -> None:
        async with StandardOutput().opened() as stream:
            for piece in ("title,price\r", f"\n{ATTACK},5\r\n", "Käse,", "6\r", "\n"):
                stream.write(piece.encode())

    asyncio.run(export())
    assert harm(terminal.written) == []
    assert terminal.written.splitlines()[::2] == ["title,price", "Käse,6"]


def test_a_log_that_somebody_looks_at() -> None:
    stream = io.StringIO()
    JsonLog(stream, VirtualClock()).emit(Trouble(at=0.0, stage="parse", message=ATTACK))
    assert harm(stream.getvalue()) == []
    assert json.loads(stream.getvalue())["message"] == ATTACK


def test_bytes_for_a_program_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", piped)
    write_bytes(ATTACK.encode() + b"\xff")
    assert piped.buffer.getvalue() == ATTACK.encode() + b"\xff"  # type: ignore[attr-defined]
