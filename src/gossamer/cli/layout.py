"""How the verbs print: tables, facts, times and sizes. Pretty on a terminal, plain lines in a pipe.

Control characters in text from the web are made visible: a page must not control the terminal.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..model.failure_groups import Failures
from ..model.item_account import ItemCounts
from ..model.run_records import RunRecords
from ..project.records.items import reasons_in_words, shared_in_words, sum_in_words
from ..units import visible, visible_lines
from .app import err, out, word_breaks

if TYPE_CHECKING:
    from ..project.spiders.drift import FieldDrift

GAP = "  "
NAME = "gossamer"  # of the program
MIN_FOLD = 24  # columns; narrower text is unreadable
GOOD_FOLD = 40  # columns; text of this width reads well
MAX_TIP = 48  # columns of a command before its meaning; longer ones push it away
FAILURES_SHOWN = 5
NOTHING = "-"  # fills an empty cell, so that columns can be counted in a pipe


class Column(msgspec.Struct, frozen=True):
    """One column. The other fields matter on a terminal only: `style` is rich's; `fold` wraps its text between words
    when the table is too wide; `spare` drops the whole column before text would be wrapped very narrowly, the highest
    value first, and among equals the last column."""

    title: str
    style: str = ""
    right: bool = False
    fold: bool = False
    spare: int = 0


def in_words(values: Mapping[str, object]) -> str:
    """Named values in one line: `pages=1,200, category=lamps`."""
    return ", ".join(
        f"{name}={value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"{name}={value}"
        for name, value in values.items()
    )


def print_table(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], *, console: Console = out, indent: int = 0
) -> None:
    """Print a table without lines. In a pipe nothing is wrapped or left out, and no cell is empty.

    On a terminal words are not broken, so that even an address longer than the line can be copied. If the columns do
    not fit side by side, each row becomes a paragraph.
    """
    width = console.width - indent if console.is_terminal else None
    lines = [[_cell(value, "" if width else NOTHING) for value in row] for row in rows]
    lines.insert(0, [column.title for column in columns])
    if width is not None:
        kept, cut = _without_spare(columns, lines, width)
        if _narrowest(kept, cut) > width:
            _print_paragraphs(columns, lines[1:], width, console, indent)
            return
        columns, lines = kept, _folded(kept, cut, width)
    widths = _widths(lines)
    for number, line in enumerate(lines):
        text = Text(" " * indent)
        for cell, room, column in zip(line, widths, columns, strict=True):
            padding = " " * (room - cell_len(cell))
            text.append(padding + cell if column.right else cell + padding, "dim" if number == 0 else column.style)
            text.append(GAP)
        text.rstrip()
        console.print(text, soft_wrap=True)


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]


def _total(lines: Sequence[Sequence[str]]) -> int:
    widths = _widths(lines)
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _without_spare(
    columns: Sequence[Column], lines: list[list[str]], width: int
) -> tuple[Sequence[Column], list[list[str]]]:
    while _total(lines) - _foldable(columns, lines) > width and any(column.spare for column in columns):
        gone = max(range(len(columns)), key=lambda index: (columns[index].spare, index))
        columns = [*columns[:gone], *columns[gone + 1 :]]
        lines = [[*line[:gone], *line[gone + 1 :]] for line in lines]
    return columns, lines


def _foldable(columns: Sequence[Column], lines: list[list[str]]) -> int:
    """How many terminal columns wrapping can save while the text still reads well."""
    return max(
        (
            room - GOOD_FOLD
            for room, column in zip(_widths(lines), columns, strict=True)
            if column.fold and room > GOOD_FOLD
        ),
        default=0,
    )


def _narrowest(columns: Sequence[Column], lines: list[list[str]]) -> int:
    """The width of the table with its folding column as narrow as possible. The last column may run over the edge: it
    displaces nothing."""
    widths = _widths(lines)
    index = _folding(columns)
    if index is None:
        return _total(lines)
    words = (cell_len(word) for line in lines for word in line[index].split())
    least = MIN_FOLD if index == len(columns) - 1 else max([MIN_FOLD, *words])
    return _total(lines) - max(widths[index] - least, 0)


def _folding(columns: Sequence[Column]) -> int | None:
    return next((index for index, column in enumerate(columns) if column.fold), None)


def _print_paragraphs(
    columns: Sequence[Column], rows: list[list[str]], width: int, console: Console, indent: int
) -> None:
    """Print each row with its first cell as the heading, then `name value` pairs, as many per line as fit."""
    room = max(width - len(GAP), MIN_FOLD)
    for first, *others in rows:
        console.print(Text.assemble(" " * indent, (first, columns[0].style or "bold")), soft_wrap=True)
        lines = [Text()]
        for column, cell in zip(columns[1:], others, strict=True):
            if not cell:
                continue
            name = f"{column.title.lower()} "
            begin, *further = wrap(cell, room - len(name))
            if lines[-1] and lines[-1].cell_len + len(GAP) + cell_len(name + begin) > room:
                lines.append(Text())
            lines[-1].append(GAP).append(name, "dim").append(begin, column.style)
            lines += [Text(GAP + part, column.style) for part in further]
        for line in lines:
            console.print(Text.assemble(" " * indent, line), soft_wrap=True)


def _folded(columns: Sequence[Column], lines: list[list[str]], width: int) -> list[list[str]]:
    """The lines, with the folding column wrapped onto further lines."""
    index = _folding(columns)
    excess = _total(lines) - width
    if index is None or excess <= 0:
        return lines
    room = max(MIN_FOLD, _widths(lines)[index] - excess)
    folded = []
    for line in lines:
        first, *rest = wrap(line[index], room)
        folded.append([*line[:index], first, *line[index + 1 :]])
        for part in rest:
            folded.append([part if at == index else "" for at in range(len(line))])
    return folded


def wrap(text: str, width: int) -> list[str]:
    """The text in one or more lines of about `width`, broken between words."""
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]


def print_facts(facts: Sequence[tuple[str, object]], *, indent: int = 2) -> None:
    """Print `name value` lines without those that have no value. On a terminal, long values are wrapped."""
    shown = [(name, value) for name, value in facts if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    room = out.width - indent - width - len(GAP)
    for name, value in shown:
        text = value if isinstance(value, Text) else Text(visible(str(value)))
        parts = list(text.divide(word_breaks(text.plain, max(room, MIN_FOLD)))) if out.is_terminal else [text]
        for at, part in enumerate(parts):
            label = name if at == 0 else ""
            line = Text.assemble(" " * indent, (label.ljust(width), "dim"), GAP, part)
            line.rstrip()
            out.print(line, soft_wrap=True)


def print_message(message: str) -> None:
    """Print the further lines of an error message, such as a traceback, without repeating the first."""
    first, _, rest = message.partition("\n")
    lines = visible_lines(rest.strip("\n")).split("\n")
    if all(line.strip() in first for line in lines):
        return
    for line in lines:
        out.print(Text(f"    {line}", style="dim"), soft_wrap=True)


def print_failures(failures: Sequence[tuple[str, str]]) -> None:
    """Print the first pages that failed, one line each with its message."""
    for url, message in failures[:FAILURES_SHOWN]:
        err.print(Text(f"  {visible(message if url in message else f'{url}: {message}')}", style="red"))
    if len(failures) > FAILURES_SHOWN:
        err.print(Text("  and others; see gossamer why URL", style="dim"))


def print_groups(failures: Failures | None, *, console: Console = out) -> None:
    """Print what the failed pages of a job have in common: each group with its count, an example, and the command that
    shows it. Nothing of a message is cut off at its end."""
    if failures is None or not failures.groups:
        return
    console.print()
    console.print(Text.assemble(("What failed", "bold"), (f"  {failures.of_letters}", "dim")))
    for group in failures.groups:
        told = Text.assemble("  ", (f"{group.count:,}", "red"), f" {group.reason}: ", visible(group.in_words))
        breaks = word_breaks(told.plain, max(console.width - 4, MIN_FOLD)) if console.is_terminal else []
        for at, part in enumerate(told.divide(breaks)):
            part.rstrip()
            console.print(Text.assemble("    " if at else "", part), soft_wrap=True)
        about = f"field {visible(group.field)}; " if group.field else ""
        example = f"    {about}for example {visible(group.url)}: {group.command}"
        console.print(Text(example, style="dim"), soft_wrap=True)
        if group.count > 1:
            console.print(Text(f"    all of them: gossamer dead replay --group {group.key}", style="dim"))
    if failures.others_in_words:
        console.print(Text(f"  {failures.others_in_words}", style="dim"), soft_wrap=True)


def print_drift(drift: Sequence[FieldDrift]) -> None:
    """Fields whose values are of another kind than before, with some of them."""
    for one in drift:
        heading(one.field, one.words)
        for key, before, now in one.examples:
            out.print(Text(f"  {visible(key)[:30]}: {visible(before)[:60]} -> {visible(now)[:60]}"))


def heading(text: str, note: str = "") -> None:
    out.print(Text.assemble((visible(text), "bold"), ("  " + visible(note) if note else "", "dim")))


def section(text: str, note: str = "") -> None:
    """A heading after an empty line."""
    out.print()
    heading(text, note)


def warn(words: str | None) -> None:
    """Print a warning, if there is one, beside the answer."""
    if words:
        err.print(Text(visible(words), style="yellow"))


def advise(*tips: tuple[str, str], console: Console = out) -> None:
    """Print commands to try next and what they do; on a terminal only."""
    if console.is_terminal:
        print_tips(console, tips)


def program() -> str:
    """How this program is called: `gossamer` if the shell finds it under that name, else the path by which it was."""
    started = Path(sys.argv[0])
    if started.name != NAME or not started.is_file():
        return NAME
    found = shutil.which(NAME)
    return NAME if found is not None and Path(found).samefile(started) else shlex.quote(str(started))


def print_tips(console: Console, tips: Sequence[tuple[str, str]]) -> None:
    """Print commands and what they do, side by side or, on a narrow terminal, one below the other."""
    name = program()
    tips = [(re.sub(rf"^{NAME}(?= )", lambda _: name, command), meaning) for command, meaning in tips]
    width = min(MAX_TIP, max(len(command) for command, _ in tips))
    needed = max(len(command.ljust(width)) + len(meaning) for command, meaning in tips) + 4
    between = "\n      " if console.is_terminal and needed > console.width else "  "
    console.print()
    for command, meaning in tips:
        shown = command if "\n" in between else command.ljust(width)
        console.print(Text.assemble("  ", (shown, "cyan"), between, (meaning, "dim")), soft_wrap=True)


def print_json(value: Any) -> None:  # Any: whatever can be JSON
    """Print a value as indented JSON to standard output, in UTF-8 whatever the locale."""
    text = json.dumps(msgspec.to_builtins(value, enc_hook=str), ensure_ascii=False, indent=2)
    write_bytes(text.encode("utf-8", "backslashreplace") + b"\n")


def answer_program(value: Any, as_json: bool) -> None:  # Any: whatever can be JSON
    """With `--json`, print the value and end the command: what follows is for people."""
    if as_json:
        print_json(value)
        raise typer.Exit


def write_bytes(content: bytes) -> None:
    """Write bytes to standard output unchanged; on a terminal, text without control sequences."""
    if sys.stdout.isatty():
        content = visible_lines(content.decode("utf-8", "surrogateescape")).encode()
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def number(count: int) -> str:
    """With thousands separators on a terminal; bare digits in a pipe."""
    return f"{count:,}" if out.is_terminal else str(count)


def _cell(value: object, nothing: str) -> str:
    return visible(str(value)) if value not in (None, "") else nothing


def record_facts(did: RunRecords | None) -> list[tuple[str, Text | str]]:
    """What a run did to the records as facts; empty if that is not known."""
    if did is None:
        return []
    return [
        ("records", did.in_words),
        ("not gone", Text(visible(did.why_kept), style="yellow") if did.why_kept else ""),
    ]


def item_facts(items: ItemCounts | None) -> list[tuple[str, Text | str]]:
    """The account of a job's items as facts: the sum, why some are not stored, and which are shared. Empty for a job
    that yielded none."""
    if items is None or not items.yielded:
        return []
    words = visible(sum_in_words(items))
    return [
        ("items", Text(words, style="yellow") if items.conflict else words),
        ("not stored", visible(reasons_in_words(items))),
        ("shared", visible(shared_in_words(items))),
    ]
