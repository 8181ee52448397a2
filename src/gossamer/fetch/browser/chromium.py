"""Chromium itself: where it is, how it is started, how much memory its processes hold, and what is left of browsers
whose workers were killed. Linux only.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...errors import Misconfigured, MissingExtra
from .watchdog import descendants

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


# Chromium heeds the last list alone, so this one has what Playwright turns off as well.
FEATURES_OFF = (
    # Two pages of the address bar, in a process of their own: without them a context costs half the CPU.
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",
    "AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "LensOverlay", "MediaRouter",
    "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding", "PreconnectToSearch", "TcpPortRandomizationWin",
    "ThirdPartyStoragePartitioning", "msEdgeUpdateLaunchServicesPreferredVersion", "msForceBrowserSignIn",
)  # fmt: skip


def flags(*, heap_megabytes: int) -> list[str]:
    """What Chromium is told beyond Playwright's own list. Nothing may leave but through the proxy."""
    return [
        # Names are looked up by the guard proxy alone. Should anything try to go round it, no name leads anywhere.
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        "--dns-prefetch-disable",
        "--disable-quic",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        # No session sees what they ask for, so nothing could count it.
        "--disable-blink-features=SharedWorker",
        f"--disable-features={','.join(FEATURES_OFF)}",
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


PREFIX = "gossamer-browser-"
# Chromium makes a socket below its folder, and Linux lets the path of a socket have 107 bytes. In a longer one the
# browser would start and never open a page.
_LONGEST_HOME = 107 - len(f"/{PREFIX}12345678/.org.chromium.Chromium.123456/SingletonSocket")
_OWNER = "worker"
_KILL_PATIENCE = 5.0  # seconds for the kernel to bury what was killed
Family = dict[int, int]  # processes, each with the moment it was born: ids are used again


def born_at(pid: int) -> int | None:
    """In ticks since the machine started; None for a process that is not there, or only waits to be buried."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def family_of(root: int) -> Family:
    """The descendants of a process."""
    return {pid: born for pid in descendants(root) if (born := born_at(pid)) is not None}


def new_folder() -> Path:
    """A folder for one browser of this process."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_home()))
    own = os.getpid()
    (folder / _OWNER).write_text(f"{own} {born_at(own)} {_namespace()}", encoding="ascii")
    return folder


def _home() -> str:
    """The folder for temporary files, or /tmp where its path is too long."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _LONGEST_HOME else "/tmp"  # noqa: S108 - mkdtemp makes names of its own


def kill(known: Family) -> None:
    """Those that are still the same processes."""
    for pid, born in known.items():
        if born_at(pid) == born:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def clear(folder: Path, known: Family) -> None:
    """End `known` and all that lives in the folder, then remove it. Takes a moment: not for the loop's own thread."""
    deadline = time.monotonic() + _KILL_PATIENCE
    while left := _alive(known) | living_in(folder):
        kill(left)
        if time.monotonic() > deadline:
            break  # the kernel holds them, in a system call that does not end
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Clear the folders of workers that are gone."""
    for folder in Path(_home()).glob(f"{PREFIX}*"):
        if _is_ours(folder) and _is_orphan(folder):
            clear(folder, {})


def living_in(folder: Path) -> Family:
    """Processes of ours that were given the folder for their files, and what descends from them."""
    place = os.fsencode(folder)
    found: Family = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        pid = int(name)
        try:
            ours = os.stat(f"/proc/{name}").st_uid == os.geteuid()
            if not ours or pid == os.getpid() or not _carries(name, place):
                continue
        except OSError:
            continue  # gone, or not to be looked at
        born = born_at(pid)
        if born is not None:
            found[pid] = born
            found |= family_of(pid)
    return found


def _carries(name: str, place: bytes) -> bool:
    words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
    if any(word == place or b"=" + place + b"/" in word for word in words):
        return True
    return b"TMPDIR=" + place in Path(f"/proc/{name}/environ").read_bytes().split(b"\0")


def _alive(known: Family) -> Family:
    return {pid: born for pid, born in known.items() if born_at(pid) == born}


def _is_ours(folder: Path) -> bool:
    try:
        return folder.lstat().st_uid == os.geteuid() and folder.is_dir() and not folder.is_symlink()
    except OSError:
        return False


def _is_orphan(folder: Path) -> bool:
    """Is its worker gone? Where it does not say, or says it of another container's process, nobody knows."""
    try:
        pid, born, namespace = (folder / _OWNER).read_text(encoding="ascii").split()
        return namespace == _namespace() and born_at(int(pid)) != int(born)
    except (OSError, ValueError):
        return False


def _namespace() -> str:
    """Process ids mean something within one namespace only."""
    return os.readlink("/proc/self/ns/pid")
