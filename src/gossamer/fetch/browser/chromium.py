"""Chromium itself: where it is, how it is started, how much memory its processes use, and how to clean up after
browsers whose workers were killed. Linux only."""

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
    """The path of the browser: `wanted`, else one on the PATH, else None for Playwright's own. Raises Misconfigured."""
    if wanted:
        found = shutil.which(os.path.expanduser(wanted))
        if found is None:
            raise Misconfigured(f"Setting browser.executable: {wanted!r} is not an executable program.")
        return found
    return next((found for found in map(shutil.which, _NAMES) if found), None)


def check_playwright() -> None:
    """Raises MissingExtra if the library is not installed."""
    try:
        import playwright.async_api  # noqa: F401
    except ImportError as error:
        raise MissingExtra("Pages in a browser need another package: pip install 'gossamer[browser]'.") from error


def is_there(wanted: str = "") -> str | None:
    """None if a browser can be started here, else what is missing. For tests and `gossamer doctor`."""
    try:
        check_playwright()
        if find_executable(wanted) is None and not _own_browser():
            return f"No Chromium was found. {HOW_TO_GET_IT}"
    except Misconfigured as error:
        return str(error)
    return None


def _own_browser() -> bool:
    """Has `playwright install` fetched a browser?"""
    place = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ms-playwright"
    )
    return any(Path(place).glob("chromium*/chrome-*/*"))


# Chromium obeys only the last list, so this one repeats what Playwright disables.
FEATURES_OFF = (
    # Two WebUI pages of the address bar, each in its own process: without them a context costs half the CPU.
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",
    "AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "LensOverlay", "MediaRouter",
    "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding", "PreconnectToSearch", "TcpPortRandomizationWin",
    "ThirdPartyStoragePartitioning", "msEdgeUpdateLaunchServicesPreferredVersion", "msForceBrowserSignIn",
)  # fmt: skip


def flags(*, heap_megabytes: int) -> list[str]:
    """Chromium's flags beyond Playwright's own list. All traffic must go through the proxy."""
    return [
        # Only the guard proxy resolves names. If anything tried to bypass it, no name would resolve.
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        "--dns-prefetch-disable",
        "--disable-quic",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        # No DevTools session sees their requests, so nothing could count them.
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
        # A page and its frames share a process, so that one session sees all their requests, and less memory is used.
        # Each page has its own context, and contexts never share a process.
        "--disable-site-isolation-trials",
        f"--js-flags=--max-old-space-size={heap_megabytes}",
    ]


def wants_sandbox() -> bool:
    """Chromium refuses to run as root unless its sandbox is off; for all other users it stays on."""
    return os.geteuid() != 0


def environment(folder: Path) -> dict[str, str]:
    """The environment for Chromium: where programs and fonts are, and a temporary home."""
    kept = ("PATH", "LANG", "LANGUAGE", "TZ", "FONTCONFIG_PATH", "FONTCONFIG_FILE")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }


def memory_of(pid: int) -> int:
    """Private memory of a process, in bytes: shared memory (above all Chromium's own code) is not counted."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_bytes().split()
    except OSError:
        return 0
    return max(0, int(fields[1]) - int(fields[2])) * _PAGE_SIZE if len(fields) > 2 else 0


def family_memory(family: Iterable[int]) -> tuple[int, dict[int, int]]:
    """Bytes used by these processes together, and by each renderer among them."""
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
# Chromium creates a socket in its folder, and Linux limits the path of a socket to 107 bytes. With a longer one the
# browser would start and never open a page.
_LONGEST_HOME = 107 - len(f"/{PREFIX}12345678/.org.chromium.Chromium.123456/SingletonSocket")
_OWNER = "worker"
_KILL_PATIENCE = 5.0  # seconds for the kernel to reap killed processes
Family = dict[int, int]  # processes, each with its start time: ids are reused


def born_at(pid: int) -> int | None:
    """The start time in ticks since boot; None if the process does not exist or is a zombie."""
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
    """The folder for temporary files, or /tmp if its path is too long."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _LONGEST_HOME else "/tmp"  # noqa: S108 - mkdtemp makes names of its own


def kill(known: Family) -> None:
    """Kill those that are still the same processes."""
    for pid, born in known.items():
        if born_at(pid) == born:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def clear(folder: Path, known: Family) -> None:
    """Kill `known` and all processes of the folder, then remove it. Blocks: call it in a thread."""
    deadline = time.monotonic() + _KILL_PATIENCE
    while left := _alive(known) | living_in(folder):
        kill(left)
        if time.monotonic() > deadline:
            break  # stuck in a system call in the kernel
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Clear the folders of dead workers."""
    for folder in Path(_home()).glob(f"{PREFIX}*"):
        if _is_ours(folder) and _is_orphan(folder):
            clear(folder, {})


def living_in(folder: Path) -> Family:
    """Our processes that were started with the folder, and their descendants."""
    place = os.fsencode(folder)
    found: Family = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        pid = int(name)
        try:
            ours = os.stat(f"/proc/{name}").st_uid == os.geteuid()
            if not ours or pid == os.getpid() or not _carries(name, place):
                continue
        except OSError:
            continue  # gone, or not readable
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
    """Is its worker dead? False if the folder names no worker, or one in another container's namespace."""
    try:
        pid, born, namespace = (folder / _OWNER).read_text(encoding="ascii").split()
        return namespace == _namespace() and born_at(int(pid)) != int(born)
    except (OSError, ValueError):
        return False


def _namespace() -> str:
    """Process ids are valid within one namespace only."""
    return os.readlink("/proc/self/ns/pid")
