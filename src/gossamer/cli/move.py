"""`gossamer move`: copy the project's state, records and raw pages to other stores, and verify the copy."""

from __future__ import annotations

import re
import shutil
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..errors import Misconfigured
from ..project.jobs.status import place_near
from ..project.upkeep.move import ROLES, MovePart, MoveReport, Watch, move
from ..settings import FILE_NAME, Settings
from ..units import many, size, visible
from .app import app, err, out, run_async, settings_with, styled
from .layout import Column, number, print_table, section

PLAIN_EVERY = 10.0  # seconds between two lines of progress in a pipe


@app.command("move")
def move_verb(
    to_state: Annotated[str | None, typer.Option(help="Where the state goes: redis://host:6379/0.")] = None,
    to_records: Annotated[str | None, typer.Option(help="Where the records go: postgresql://host/database.")] = None,
    to_archive: Annotated[str | None, typer.Option(help="Where the raw pages go: s3://bucket/prefix.")] = None,
    project: Annotated[str | None, typer.Option(help="The project's name there; shared servers need one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be moved; move nothing.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Write the new addresses to gossamer.toml.")] = False,
) -> None:
    """Move the project to other stores, from a laptop to a fleet or back. Stop its workers first."""
    settings = settings_with()
    given = {"state": to_state, "records": to_records, "archive": to_archive}
    addresses = {role: address for role, address in given.items() if address is not None}
    if not addresses:
        raise Misconfigured(
            "Name the targets: gossamer move --to-state redis://host:6379/0 --to-records postgresql://host/database "
            "--to-archive s3://bucket/prefix (any of the three)."
        )
    target = settings_with(**addresses, project=project)
    roles = [role for role in ROLES if role in addresses]
    with progress(quiet=dry_run) as watch:
        report = run_async(move(settings, target, roles, watch=watch, rehearse=dry_run))
    for part in report.parts:
        show(part, dry_run=dry_run)
    if report.problems:
        complain(
            report,
            "The source is unchanged and can be used; the target refuses to be used. Run the same command again.",
        )
        raise typer.Exit(1)
    if dry_run:
        out.print("\nNothing was moved. Run without --dry-run to move it.")
        return
    compared = many(report.compared, "thing that was", "things that were")
    out.print(f"\nThe move is complete: every count is the same, and so are {compared} read on both sides.")
    _settle(settings, target, addresses, project, write=write)


def show(part: MovePart, *, dry_run: bool) -> None:
    section(part.role, f"{part.source} -> {part.target}")
    names = [*part.here, *(name for name in part.there if name not in part.here)]
    rows = []
    for name in names:
        here, there = part.here.get(name, 0), part.there.get(name, 0)
        say = size if name == "bytes" else number
        verdict = "" if dry_run else ("same" if here == there else "DIFFERS")
        rows.append((name, say(here), say(there), verdict))
    if not rows:
        out.print("  nothing", markup=False)
        return
    columns = (Column("WHAT"), Column("HERE", right=True), Column("THERE", right=True), Column(""))
    print_table(columns, rows, indent=2)


def complain(report: MoveReport, advice: str) -> None:
    err.print(Text(f"\nThe two sides are not the same ({many(len(report.problems), 'difference')}):", style="bold red"))
    for problem in report.problems[:20]:
        err.print(Text(f"  {visible(problem)}"))
    err.print(Text(advice))


def _settle(
    settings: Settings, target: Settings, addresses: dict[str, str], project: str | None, *, write: bool
) -> None:
    """Write the new addresses to the file, or print them."""
    wanted = {"project": target.project} if project is not None and target.project != settings.project else {}
    wanted |= addresses
    file = settings.root / FILE_NAME
    if write:
        backup = _backed_up(file)
        keep_addresses(file, wanted)
        note = f" The previous file is kept as {backup.name}." if backup is not None else ""
        out.print(f"{FILE_NAME} names the new addresses.{note}", markup=False)
    else:
        out.print(f"Now write this at the top of {visible(str(file))} (or run with --write next time):\n", markup=False)
        for name, value in wanted.items():
            out.print(f'{name} = "{visible(masked_address(value))}"', markup=False, soft_wrap=True)
        if any(masked_address(value) != value for value in wanted.values()):
            out.print("\n*** stands for the password, which is not printed.", markup=False)
    for role in addresses:
        origin = settings.origins.get(role, "")
        if origin.startswith("GOSSAMER_"):
            err.print(
                styled("[yellow]{} is set in the environment and overrides the file: change it there.[/]", origin)
            )
    old = " and ".join(place_near(settings, role, Path.cwd()) for role in addresses)
    out.print(f"What is at {old} was not changed; delete it when you no longer need it.", markup=False, soft_wrap=True)
    if kept := [place_near(settings, role, Path.cwd()) for role in ROLES if role not in addresses]:
        out.print(f"Not moved, and still in use: {' and '.join(kept)}.", markup=False, soft_wrap=True)


def _backed_up(file: Path) -> Path | None:
    if not file.exists():
        return None
    backup = file.with_name(f"{file.name}.bak")
    try:
        shutil.copy2(file, backup)
    except OSError as error:
        raise Misconfigured(f"{backup} cannot be written ({error.strerror}). The file was not changed.") from error
    return backup


@contextmanager
def progress(*, quiet: bool) -> Iterator[Watch]:
    """Show the progress: a bar on a terminal, an occasional line in a pipe."""
    if quiet:
        yield lambda role, done, total: None
    elif err.is_terminal:
        with _bar() as bar:
            tasks: dict[str, TaskID] = {}

            def advance(role: str, done: int, total: int) -> None:
                if role not in tasks:
                    tasks[role] = bar.add_task(role, total=total, told="")
                task = bar.tasks[tasks[role]]
                speed = task.finished_speed or task.speed
                say = size if role == "archive" else "{:,}".format
                told = f"{say(done)}/{say(total)}" + (f"  {say(int(speed))}/s" if speed else "")
                bar.update(tasks[role], completed=done, total=total, told=told)

            yield advance
    else:
        yield _Lines()


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description:8}"),
        BarColumn(24),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    )


class _Lines(msgspec.Struct):
    """Progress in a pipe."""

    role: str = ""
    began: float = 0.0
    told: float = 0.0

    def __call__(self, role: str, done: int, total: int) -> None:
        now = time.monotonic()
        if role != self.role:
            self.role, self.began, self.told = role, now, now
        if now - self.told >= PLAIN_EVERY:
            self.told = now
            rate = done / (now - self.began)
            left = f"{(total - done) / rate:,.0f} s left" if rate and total >= done else ""
            err.print(f"{role}: {done:,} of {total:,}, {rate:,.0f}/s, {left}", markup=False)


_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_SECRET = re.compile(r"(?i)([?&](?:password|passwd|secret|token|sslpassword)=)[^&]*")


def masked_address(address: str) -> str:
    """The address with *** for its password."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "***"
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    # Another @ is part of a password that was not percent-encoded.
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
    """The TOML text with those top-level keys set. Raises Misconfigured if that would change anything else."""
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
            f"{', '.join(map(visible, wanted))} cannot be changed in gossamer.toml without changing more. The file was "
            f"not changed: write the new addresses into it yourself."
        )
    return result


def _read(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
