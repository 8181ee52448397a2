"""Draw docs/images/architecture.svg from the text below, and write the tree of the code into docs/tree.md.

    python scripts/architecture.py            # what `make docs` does
    python scripts/architecture.py --check    # exit code 1 and a list when one of the two is out of date

The picture has one band per line: the name of the band, then its boxes, each with a few words. Boxes joined by `>` get
arrows; `@` before a box makes it the start and `<` after one the end of the arrow that leads back. The words for a room
are the first sentence of its docstring, so that the tree cannot say anything else than the code.
"""

from __future__ import annotations

import ast
import re
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tree.md"
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
PACKAGE = ROOT / "src" / "gossamer"

BANDS = """\
the doors: cli (verbs, flags, what is printed) | server (the HTTP API)
what one can do with a project: project (crawl, jobs, why, records ...)
the journey of one URL, walked by crawl: schedule (what, when) > frontier< (queue, leases) > routing (which way) > \
    fetch (request, response) > @parse (items, links) > pipeline (checks) > store (records, archive)
around it: monitor (counts, progress, logs) | access (keys, audit log) | process (watched children) | \
    demo (the built-in shop)
backends, chosen by three connection URLs: sqlite (state, records) | redis (state) | postgres (records) | \
    folder (archive) | object (archive)
underneath: model (values) | settings (gossamer.toml) | errors (one tree) | clock (time) | units (5/s, 10MB)
"""

BEGIN, END = "<!-- the tree: written by scripts/architecture.py -->", "<!-- end of the tree -->"

WIDTH, MARGIN, BAND, GAP, BOX = 1080, 20, 96, 12, 50


def picture() -> str:
    """The bands from top to bottom, each with its boxes side by side."""
    parts: list[str] = []
    for row, line in enumerate(BANDS.strip().splitlines()):
        name, _, boxes = line.partition(":")
        parts += _band(MARGIN + row * (BAND + GAP), name, boxes)
    height = 2 * MARGIN + len(BANDS.strip().splitlines()) * (BAND + GAP) - GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="The rooms of Gossamer and the journey of a URL through them">\n'
        "<style>text { font: 15px ui-sans-serif, system-ui, sans-serif; fill: #1f2d2a; } "
        ".name { font-size: 12px; fill: #5d6b67; } .band { fill: #f1f4f1; } .box { fill: #fff; stroke: #3f7d58; } "
        ".way { fill: none; stroke: #3f7d58; stroke-width: 1.5; } .back { stroke-dasharray: 4 3; }</style>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0l8 4-8 4z" fill="#3f7d58"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _band(top: int, name: str, boxes: str) -> list[str]:
    words = [word.strip() for word in re.split(r"[>|]", boxes)]
    joined = ">" in boxes
    space = (WIDTH - 2 * MARGIN) / len(words)
    width = min(space - 20, 230)
    parts = [
        f'<rect class="band" x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" height="{BAND}" rx="8"/>',
        f'<text class="name" x="{MARGIN + 12}" y="{top + 18}">{escape(name.strip())}</text>',
    ]
    starts, ends = 0.0, 0.0
    y = top + 28
    for number, word in enumerate(words):
        middle = MARGIN + space * (number + 0.5)
        title, _, note = word.partition(" (")
        if title.startswith("@"):
            starts = middle
        if title.endswith("<"):
            ends = middle
        parts.append(
            f'<rect class="box" x="{middle - width / 2:.0f}" y="{y}" width="{width:.0f}" height="{BOX}" rx="6"/>'
            f'<text x="{middle:.0f}" y="{y + 21}" text-anchor="middle">{escape(title.strip("@<"))}</text>'
            f'<text class="name" x="{middle:.0f}" y="{y + 39}" text-anchor="middle">{escape(note.rstrip(")"))}</text>'
        )
        if joined and number:
            left, right = middle - space + width / 2, middle - width / 2
            parts.append(
                f'<path class="way" marker-end="url(#tip)" d="M{left:.0f} {y + BOX / 2:.0f}H{right - 1:.0f}"/>'
            )
    if starts and ends:
        low = y + BOX + 14
        parts.append(
            f'<path class="way back" marker-end="url(#tip)" '
            f'd="M{starts:.0f} {y + BOX}V{low}H{ends:.0f}V{y + BOX + 1}"/>'
            f'<text class="name" x="{(starts + ends) / 2:.0f}" y="{low - 3}" text-anchor="middle">links</text>'
        )
    return parts


def tree() -> str:
    """Every room and file with the first sentence of its docstring."""
    lines = ["```text", "src/gossamer/"]
    for path in sorted(PACKAGE.iterdir(), key=lambda one: (one.is_dir(), one.name)):
        lines += _entry(path, 1)
    return "\n".join([*lines, "```"])


def _entry(path: Path, depth: int) -> list[str]:
    indent = "  " * depth
    if path.is_file():
        if path.suffix != ".py" or path.name in ("__init__.py", "__main__.py"):
            return []
        return [f"{indent}{path.name}".ljust(30) + f"  {_sentence(path)}"]
    if not (path / "__init__.py").exists():
        return []
    lines = [f"{indent}{path.name}/".ljust(30) + f"  {_sentence(path / '__init__.py')}"]
    for child in sorted(path.iterdir(), key=lambda one: (one.is_dir(), one.name)):
        lines += _entry(child, depth + 1)
    return lines


def _sentence(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.?])\s", first, maxsplit=1)[0].rstrip(".")
    head, _, _ = sentence.partition(": ")
    return head if len(head.split()) > 3 else sentence


def page() -> str:
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE.relative_to(ROOT)} must hold the two comments around the tree.")
    return f"{before}{BEGIN}\n\n{tree()}\n\n{END}{after}"


def main() -> None:
    wanted = {PICTURE: picture(), PAGE: page()}
    stale = [file for file, text in wanted.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for file in stale:
            print(f"{file.relative_to(ROOT)} is out of date: run `make docs`.")
        raise SystemExit(bool(stale))
    for file in stale:
        file.write_text(wanted[file], encoding="utf-8")
        print(f"wrote {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
