"""Chromium itself: where it is, how it is started, and how much memory its processes hold. Linux only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from ...errors import Misconfigured, MissingExtra

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
HOW_TO_GET_IT = (
    "Install Chromium (Debian: apt-get install chromium), or run `playwright install chromium`, or name it in "
    "browser.executable."
)


def find_executable(wanted: str = "") -> str | None:
    """The browser's file: `wanted`, else one on the PATH, else None for Playwright's own. Raises Misconfigured."""
    if wanted:
        found = shutil.which(os.path.expanduser(wanted))
        if found is None:
            raise Misconfigured(f"Setting browser.executable: {wanted!r} is no program that can be started.")
        return found
    return next((found for found in map(shutil.which, _NAMES) if found), None)


def check_playwright() -> None:
    """Raises MissingExtra when the library is not installed."""
    try:
        import playwright.async_api  # noqa: F401
    except ImportError as error:
        raise MissingExtra("Pages in a browser need another package: pip install 'gossamer[browser]'.") from error


def is_there(wanted: str = "") -> str | None:
    """None when a browser can be started here, else what is missing. For tests and `gossamer doctor`."""
    try:
        check_playwright()
        if find_executable(wanted) is None and not _own_browser():
            return f"No Chromium was found. {HOW_TO_GET_IT}"
    except Misconfigured as error:
        return str(error)
    return None


def _own_browser() -> bool:
    """Is there one that `playwright install` has fetched?"""
    place = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ms-playwright"
    )
    return any(Path(place).glob("chromium*/chrome-*/*"))


def flags(*, heap_megabytes: int) -> list[str]:
    """What Chromium is told beyond Playwright's own list. Nothing may leave but through the proxy."""
    return [
        # Names are looked up by the gatehouse alone. Should anything try to go round it, no name leads anywhere.
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        "--dns-prefetch-disable",
        "--disable-quic",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-domain-reliability",
        "--disable-sync",
        "--no-pings",
        "--no-first-run",
        "--no-default-browser-check",
        "--mute-audio",
        "--disable-gpu",
        # A page and its frames share a process, so that one session sees all their requests, and less memory is
        # used. Each page has a context of its own, and contexts never share a process.
        "--disable-site-isolation-trials",
        f"--js-flags=--max-old-space-size={heap_megabytes}",
    ]


def wants_sandbox() -> bool:
    """Chromium refuses to start as root unless its sandbox is off; everybody else keeps it."""
    return os.geteuid() != 0


def environment(folder: Path) -> dict[str, str]:
    """What Chromium sees of ours: where programs and fonts are, and a home that is thrown away."""
    kept = ("PATH", "LANG", "LANGUAGE", "TZ", "FONTCONFIG_PATH", "FONTCONFIG_FILE")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }


def memory_of(pid: int) -> int:
    """Bytes that a process holds for itself: what it shares (Chromium's own code, above all) is not counted."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_bytes().split()
    except OSError:
        return 0
    return max(0, int(fields[1]) - int(fields[2])) * _PAGE_SIZE if len(fields) > 2 else 0


def family_memory(family: Iterable[int]) -> tuple[int, dict[int, int]]:
    """Bytes held by these processes together, and by each renderer among them."""
    total = 0
    renderers: dict[int, int] = {}
    for pid in family:
        held = memory_of(pid)
        total += held
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"--type=renderer" in command:
            renderers[pid] = held
    return total, renderers
