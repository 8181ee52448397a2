"""`python -m bench.gate`: how many instructions a start and a page cost, beside the figures that are kept.

Clocks lie on a machine that others use, so instructions are counted, by callgrind, with a fixed seed for hashes. Two
sizes of the same site tell the start of a crawl apart from its pages. Counts of one interpreter say nothing about
another, so `instructions.json` names the one it was measured with. `--keep` writes the figures of today into it.
Crawls are not quite deterministic: on a busy machine, three of 720 pages with the same code took from 6.45 to 6.60
thousand million, which is 5 % of a page. Count an excess again, in turn with the code before it, before you search.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .crawlers import Command, Gossamer, gossamer
from .server import ROOT, started
from .table import table

KEPT = ROOT / "bench" / "instructions.json"
MOST = 0.03  # the greatest share by which a figure may exceed the kept one
SMALL, LARGE = 240, 720  # pages of the two crawls
VERBS = {"--version": ("--version",), "--help": ("--help",), "status": ("status",)}


def interpreter() -> str:
    """The interpreter, as far as it decides how many instructions a program takes."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    optimised = "with" if "--enable-optimizations" in arguments else "without"
    library = "shared" if "--enable-shared" in arguments else "static"
    made = f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}"
    return f"{made}, {optimised} --enable-optimizations, {library} library, {platform.machine()}"


def instructions(command: Command) -> int:
    """Run a command under callgrind and return how many instructions it executed in user space, in all threads."""
    with tempfile.TemporaryDirectory(prefix="bench-gate-out-") as folder:
        tool = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/callgrind")
        done = subprocess.run(
            [*tool, *command.arguments],
            cwd=command.folder,
            env={**command.environment(), "PYTHONHASHSEED": "0", "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or counted is None:
        raise SystemExit(f"{' '.join(command.arguments[-4:])} failed under callgrind:\n{done.stderr[-2000:]}")
    return int(counted[1])


def command_line(folder: Path, *words: str) -> Command:
    """A command as people run it."""
    main = gossamer(folder, *words)
    return Command([sys.executable, "-c", "from gossamer.cli import main; main()", *words], folder, main.variables)


def measure() -> dict[str, int]:
    """All figures, in instructions. The folder of the larger crawl is the project that `status` describes."""
    found: dict[str, int] = {}
    crawls: dict[int, int] = {}
    crawler = Gossamer()
    compileall.compile_dir(ROOT / "src", quiet=2)
    compileall.compile_dir(ROOT / "bench", quiet=2, maxlevels=0)
    with tempfile.TemporaryDirectory(prefix="bench-gate-") as name:
        for pages in (SMALL, LARGE):
            folder = Path(name) / str(pages)
            folder.mkdir()
            with started("bench.site", "--pages", str(pages)) as server:
                crawls[pages] = instructions(crawler.command([f"http://127.0.0.1:{server.port}/"], folder))
                asked = server.ask("/__served")
            if asked != pages + 1:  # and robots.txt
                raise SystemExit(f"The crawl of {pages} pages made {asked} requests.")
            print(f"{pages} pages: {crawls[pages]:,}", flush=True)
        for verb, words in VERBS.items():
            found[verb] = instructions(command_line(folder, *words))
    page = (crawls[LARGE] - crawls[SMALL]) // (LARGE - SMALL)
    return {**found, "start of a crawl": crawls[SMALL] - SMALL * page, "page": page}


def excesses(kept: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """The figures that exceed the kept ones by more than MOST."""
    return [name for name, count in found.items() if name not in kept or count > kept[name] * (1 + MOST)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gate", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="write the figures of today into instructions.json")
    chosen = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("Instructions are counted with valgrind: install it (Debian: apt install valgrind).")
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"interpreter": "none", "instructions": {}}
    same = kept["interpreter"] == interpreter()
    if not same and not chosen.keep:
        raise SystemExit(
            f"{KEPT.name} was measured with {kept['interpreter']}; this is {interpreter()}. Run `python -m bench.gate "
            f"--keep` on the code before your change first."
        )
    before: dict[str, int] = kept["instructions"] if same else {}
    found = measure()
    rows = [
        [name, f"{before[name]:,}", f"{count:,}", f"{count / before[name] - 1:+.1%}"]
        if name in before
        else [name, "-", f"{count:,}", "-"]
        for name, count in found.items()
    ]
    print(f"{interpreter()}; load {os.getloadavg()[0]:.1f}")
    print(table(["instructions", "kept", "now", "change"], rows))
    if chosen.keep:
        KEPT.write_text(json.dumps({"interpreter": interpreter(), "instructions": found}, indent=2) + "\n")
        return 0
    beyond = excesses(before, found)
    print(f"Promised: at most {MOST:.0%} more. " + (f"NOT KEPT: {', '.join(beyond)}." if beyond else "Kept."))
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
