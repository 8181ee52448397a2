"""Addresses on their way into gossamer.toml and onto the screen: written in place, shown without secrets."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ..errors import Misconfigured
from ..units import visible

_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_SECRET = re.compile(r"(?i)([?&](?:password|passwd|secret|token|sslpassword)=)[^&]*")


def shown(address: str) -> str:
    """The address with *** for its password."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "***"
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    # An @ further on is half of a password that was not percent-encoded.
    if "@" in parts.path:
        return f"{parts.scheme}://***"
    text = parts._replace(netloc=f"{name}{':***' if colon else ''}{at}{host}").geturl() if at else address
    return _SECRET.sub(r"\1***", text)


def keep_addresses(file: Path, wanted: dict[str, str]) -> None:
    """Set top-level keys of a TOML file, leaving every other line as it is. Raises Misconfigured, changing nothing."""
    try:
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        after = with_keys(before, wanted)
        draft = file.with_name(f"{file.name}.draft")
        draft.write_text(after, encoding="utf-8")
        draft.replace(file)
    except OSError as error:
        raise Misconfigured(
            f"{file} cannot be written ({error.strerror}). Write the addresses into it yourself."
        ) from error


def with_keys(text: str, wanted: dict[str, str]) -> str:
    """The TOML text with those top-level keys set. Raises Misconfigured where that would change anything else."""
    first = _TABLE.search(text)
    head, rest = (text[: first.start()], text[first.start() :]) if first else (text, "")
    added = []
    for name, value in wanted.items():
        line = f"{name} = {msgspec.json.encode(value).decode()}"
        old = re.compile(rf"^[ \t]*{name}[ \t]*=.*$", re.MULTILINE)
        if old.search(head):
            head = old.sub(lambda _, line=line: line, head, count=1)  # type: ignore[misc]  # binds this turn's line
        else:
            added.append(line)
    if added:
        head = head.rstrip("\n") + "\n" if head.strip() else head
        head += "\n".join(added) + "\n" + ("\n" if rest else "")
    result = head + rest
    if _read(result) != {**(_read(text) or {}), **wanted}:
        raise Misconfigured(
            f"{', '.join(map(visible, wanted))} cannot be changed in gossamer.toml without changing more. The file is "
            f"as it was: write the new addresses into it yourself."
        )
    return result


def _read(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
