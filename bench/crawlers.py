"""Who runs: for each crawler its version, its command and how its records are read back afterwards.

Lives here: the crawlers and the venv of the peers. How they are measured is in run.py.
"""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .server import ROOT

VENV = ROOT / ".venv-bench"
PEER_PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "bench" / "peers" / "requirements.txt"

GOSSAMER_TOML = """\
[politeness]
concurrency = 32

[fetch]
allow_hosts = ["127.0.0.1"]
"""
ABSENT = {
    "Colly": "not installed: Debian has Go, but no package of it, and go's own registry is not asked",
}


@dataclass(frozen=True)
class Command:
    """What is started: arguments, folder, and variables beyond our own environment."""

    arguments: list[str]
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        # Installed packages are compiled, and so are sources from their second run on, unless this is set.
        ours = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**ours, **self.variables}


class Scrapy:
    name = "Scrapy"
    package = "scrapy"

    def version(self) -> str | None:
        return peer_version(self.package)

    def command(self, starts: Sequence[str], folder: Path) -> Command:
        script = ROOT / "bench" / "peers" / "scrapy_peer.py"
        return Command([str(PEER_PYTHON), str(script), starts[0], str(folder)], folder)

    def records(self, folder: Path) -> Iterator[dict[str, Any]]:
        yield from _json_lines((folder / "records.jsonl").read_text(encoding="utf-8"))


class Crawlee:
    name = "Crawlee"
    package = "crawlee"

    def version(self) -> str | None:
        return peer_version(self.package)

    def command(self, starts: Sequence[str], folder: Path) -> Command:
        script = ROOT / "bench" / "peers" / "crawlee_peer.py"
        return Command([str(PEER_PYTHON), str(script), starts[0], str(folder)], folder)

    def records(self, folder: Path) -> Iterator[dict[str, Any]]:
        for file in (folder / "storage" / "datasets" / "default").glob("[0-9]*.json"):
            yield json.loads(file.read_text(encoding="utf-8"))


class ByHand:
    """aiohttp and selectolax in a loop of fifty lines: the ceiling."""

    name = "By-hand"
    package = "selectolax"

    def version(self) -> str | None:
        return peer_version(self.package)

    def command(self, starts: Sequence[str], folder: Path) -> Command:
        script = ROOT / "bench" / "peers" / "hand_peer.py"
        return Command([str(PEER_PYTHON), str(script), starts[0], str(folder)], folder)

    def records(self, folder: Path) -> Iterator[dict[str, Any]]:
        yield from _json_lines((folder / "records.jsonl").read_text(encoding="utf-8"))


class Gossamer:
    name = "Gossamer"

    def version(self) -> str | None:
        compileall.compile_dir(ROOT / "src", quiet=2)  # as installing it would; the peers are compiled as well
        return _version(sys.executable, "gossamer") or "from source"

    def command(self, starts: Sequence[str], folder: Path) -> Command:
        hosts = sorted({str(urlsplit(start).hostname) for start in starts})
        settings = GOSSAMER_TOML.replace('["127.0.0.1"]', json.dumps(hosts))
        (folder / "gossamer.toml").write_text(settings, encoding="utf-8")
        spider = f"{ROOT / 'bench' / 'gossamer_peer.py'}:Shop"
        return gossamer(
            folder,
            "crawl", spider, "--rate", "unlimited", "--concurrency", "32", "--quiet",
            variables={"BENCH_START": " ".join(starts)},
        )  # fmt: skip

    def records(self, folder: Path) -> Iterator[dict[str, Any]]:
        export = gossamer(folder, "export", "--format", "jsonl")
        done = subprocess.run(
            export.arguments, cwd=folder, env=export.environment(), capture_output=True, text=True, check=True
        )
        yield from _json_lines(done.stdout)


Crawler = Gossamer | Scrapy | Crawlee | ByHand
ALL: tuple[Crawler, ...] = (Gossamer(), Scrapy(), Crawlee(), ByHand())


def bytes_left(folder: Path) -> dict[str, int]:
    """What a Gossamer crawl left on disk, by store. The journals are empty when it has ended."""
    data = folder / "gossamer-data"
    files = {"state": data.glob("state.db*"), "records": data.glob("records.db*"), "archive": data.rglob("*.zst")}
    return {name: sum(file.stat().st_size for file in found) for name, found in files.items()}


def gossamer(folder: Path, *arguments: str, variables: dict[str, str] | None = None) -> Command:
    """A `gossamer` command line in the project `folder`, in one process: a parent would hide what it costs."""
    source = {"PYTHONPATH": str(ROOT / "src"), **(variables or {})}
    return Command([sys.executable, "-c", "from gossamer.cli.app import run; run()", *arguments], folder, source)


def install_peers() -> None:
    """Make .venv-bench and put missing peers into it. A failure is told, and the table shows who is missing."""
    if not PEER_PYTHON.exists():
        _tell("making .venv-bench for the peers")
        _run([_uv(), "venv", "--quiet", str(VENV)] if _uv() else [sys.executable, "-m", "venv", str(VENV)])
    if all(peer_version(package) for package in ("scrapy", "crawlee", "scrapy-redis", "selectolax")):
        return
    _tell("installing the peers into .venv-bench")
    pip = (
        [_uv(), "pip", "install", "--python", str(PEER_PYTHON)] if _uv() else [str(PEER_PYTHON), "-m", "pip", "install"]
    )
    # One by one: a peer that cannot be had does not keep the other one out.
    for requirement in REQUIREMENTS.read_text().split():
        _run([*pip, "--quiet", requirement])


def _uv() -> str:
    return shutil.which("uv") or ""


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        _tell(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def peer_version(package: str) -> str | None:
    return _version(str(PEER_PYTHON), package) if PEER_PYTHON.exists() else None


def _version(python: str, package: str) -> str | None:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or None


def _json_lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.strip():
            yield json.loads(line)
