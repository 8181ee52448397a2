#!/usr/bin/env python3
"""Build the site of the manual, in build/site: the pages of docs/, a reference made of docstrings, and decisions.

The tree of pages is that of docs/README.md: a heading for each section, a row for each page. What links to a file
outside of docs/ is taken along.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS, BUILD = ROOT / "docs", ROOT / "build"
MANUAL = BUILD / "manual"
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "examples/README.md",
    "bench/README.md",
    "deploy/README.md",
    "deploy/kubernetes/README.md",
)
SECTION = re.compile(r"^\*\*(.+?)\*\*$|^## (.+)$", re.MULTILINE)
ROW = re.compile(r"^\| \[([^\]]+)\]\(([^)]+\.md)\) \|(.*)\|$", re.MULTILINE)
LINK = re.compile(r"\[([^\[\]]*)\]\(([^)#\s]+)([^)]*)\)")
FENCE = re.compile(r'^(\s*```)(\w+)[^\n]*?( title="[^"]*")?$', re.MULTILINE)  # other words are for the tests
PYTHON = "python.md"


def sections(index: str) -> dict[str, list[tuple[str, str]]]:
    """The title and file of each page, by section."""
    found: dict[str, list[tuple[str, str]]] = {}
    marks = [*SECTION.finditer(index)]
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        rows = ROW.findall(index[mark.end() : after.start() if after else len(index)])
        if rows:
            number = re.compile(r"\d{4}")
            found[mark[1] or mark[2]] = [
                (f"{title} {what.strip()}" if number.fullmatch(title) else title, file) for title, file, what in rows
            ]
    return found


def place_of(file: Path) -> Path | None:
    """Where a file of the project stands in the manual; None if it does not."""
    if file == DOCS / "README.md":
        return MANUAL / "index.md"
    if file.is_relative_to(DOCS):
        return MANUAL / file.relative_to(DOCS)
    name = str(file.relative_to(ROOT))
    return MANUAL / name if name in OUTSIDE else None


def copy(page: Path) -> None:
    """A page, whose links lead to the manual's copies; what is not in the manual is named without a link."""
    to = place_of(page)
    assert to is not None  # a page of the manual

    def led(match: re.Match[str]) -> str:
        text, target, rest = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        aim = place_of((page.parent / target).resolve())
        return f"[{text}]({os.path.relpath(aim, to.parent)}{rest})" if aim is not None else text

    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(FENCE.sub(lambda fence: fence[1] + fence[2] + (fence[3] or ""), LINK.sub(led, page.read_text())))


def public_names() -> list[str]:
    """What `from gossamer import` offers, without importing it."""
    tree = ast.parse((ROOT / "src/gossamer/__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return sorted(ast.literal_eval(node.value))
    raise SystemExit("src/gossamer/__init__.py has no __all__.")


def reference() -> str:
    names = "\n\n".join(f"::: gossamer.{name}" for name in public_names() if not name.startswith("_"))
    return (
        f"# Python\n\nThe names of `from gossamer import ...`. [Spiders](spiders.md) shows them at work.\n\n{names}\n"
    )


def nav(tree: dict[str, list[tuple[str, str]]]) -> str:
    lines = ["nav = [", '  { "Gossamer" = "index.md" },']
    for section, pages in tree.items():
        rows = ", ".join(f"{{ {quoted(title)} = {quoted(file)} }}" for title, file in pages)
        lines.append(f"  {{ {quoted(section)} = [{rows}] }},")
    return "\n".join([*lines, "]"])


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main() -> int:
    shutil.rmtree(MANUAL, ignore_errors=True)
    tree = sections((DOCS / "README.md").read_text())
    tree["Reference"].append(("Python", PYTHON))
    tree["Understand"] += [("Contributing", "CONTRIBUTING.md"), ("Changes", "CHANGELOG.md")]
    for page in DOCS.rglob("*"):
        place = MANUAL / page.relative_to(DOCS)
        if page.suffix == ".md":
            copy(page)
        elif page.is_file() and page.suffix != ".py":
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, place)
    for name in OUTSIDE:
        copy(ROOT / name)
    (MANUAL / PYTHON).write_text(reference())
    listed = {file for pages in tree.values() for _, file in pages}
    missing = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if str(page.relative_to(DOCS)) not in listed]
    if left := [name for name in missing if name != "README.md"]:
        raise SystemExit(f"docs/README.md does not name {', '.join(left)}.")
    base = (ROOT / "scripts/manual.toml").read_text()
    config = base.replace("[project.theme]", f"{nav(tree)}\n\n[project.theme]", 1)
    tomllib.loads(config)
    (BUILD / "zensical.toml").write_text(config)
    made = subprocess.run(  # noqa: S603  # the program that `make site` names
        [sys.argv[1], "build", "--clean", "--strict", "-f", str(BUILD / "zensical.toml")], cwd=BUILD, check=False
    )
    if made.returncode == 0:
        print("Look at it: python3 -m http.server --bind 127.0.0.1 --directory build/site 8001")
    return made.returncode


if __name__ == "__main__":
    sys.exit(main())
