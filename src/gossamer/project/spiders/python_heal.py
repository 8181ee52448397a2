"""Proposes other selectors for a spider in Python whose site has a new layout, as a diff that a person applies.

What it does: the spider's callbacks run again on archived pages from before, with a note of which `css` and `xpath`
call found which text; the texts tie calls to fields of the items. Calls that find nothing on the new pages get a
selector that was learned from the records. Crawls pay nothing for this: the notes are taken here, by the command.
How it fails: callbacks that raise are left out; a field that no call gives by itself has no proposal.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ...errors import ParseFailed, Permanent
from ...model.item import Item, item_data, schema_of
from ...model.page import Snapshot
from ...model.record import PageFacts
from ...parse.callbacks import run_callback
from ...parse.page import Page
from ...parse.selectors import Selector, SelectorList
from ...parse.spider import Spider
from ...recipe.induction.decision import Decision, Finding
from ...recipe.induction.goal import Goal, Sample, agrees, known_value, plain
from ...recipe.induction.induce import induce
from ...recipe.model import FieldType, TypeOptions
from ...recipe.sources import PagePart, PageView
from ...store.contract import RecordQuery
from ...units import many
from ..open import Project
from ..reparse.archive_job import FAILED
from .shown_pages import newest_visits

MOST_PAGES = 60  # of the new layout
MOST_TRACED = 12  # pages from before
MOST_TEXTS = 20  # of one call
TYPES = {"text": FieldType.TEXT, "int": FieldType.INT, "float": FieldType.FLOAT, "decimal": FieldType.DECIMAL,
         "money": FieldType.MONEY, "datetime": FieldType.DATE, "date": FieldType.DAY}  # fmt: skip


class SelectorUse(msgspec.Struct, frozen=True, order=True):
    """A `css` or `xpath` call in the spider's file: where it stands, in lines from 1 and bytes from 0."""

    line: int
    column: int
    end_line: int
    end_column: int
    selector: str


class ProposedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A field whose call finds nothing any more, and the call that would."""

    field: str
    line: int
    selector: str
    new: str  # "" if nothing was learned
    decision: Decision
    reason: str


class PythonHealing(msgspec.Struct, frozen=True, kw_only=True):
    spider: str
    file: str
    pages: int  # that could not be parsed
    fields: list[ProposedLine]
    diff: str

    def words(self) -> str:
        if not self.fields:
            return "Nothing was found that another selector would mend."
        new = sum(bool(one.new) for one in self.fields)
        return (
            f"{many(self.pages, 'page')} of {self.spider} could not be parsed. New selectors for {new} of"
            f" {many(len(self.fields), 'field')} that were lost. Nothing is changed: apply the diff yourself."
        )


@contextmanager
def traced(file: str) -> Iterator[dict[SelectorUse, list[str]]]:
    """Note the texts that every call in this file finds, while the block runs."""
    noted: dict[SelectorUse, list[str]] = defaultdict(list)
    kept = [(cls, name, getattr(cls, name)) for cls in (Page, Selector, SelectorList) for name in ("css", "xpath")]

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, selector: str, *more: Any, **variables: Any) -> Any:
            found = original(self, selector, *more, **variables)
            frame = sys._getframe(1)
            if frame.f_code.co_filename == file:
                place = next(iter(list(frame.f_code.co_positions())[frame.f_lasti // 2 :]), None)
                if place is not None and None not in place:
                    line, end_line, column, end_column = place
                    texts = [plain(one.text) for one in found[:MOST_TEXTS]]
                    noted[SelectorUse(line or 0, column or 0, end_line or 0, end_column or 0, selector)] += texts
            return found

        return call

    for cls, name, original in kept:
        setattr(cls, name, noting(original))
    try:
        yield noted
    finally:
        for cls, name, original in kept:
            setattr(cls, name, original)


async def find_python_healing(project: Project, spider: Spider) -> PythonHealing:
    """The proposal. Raises BackendUnavailable."""
    file = inspect.getsourcefile(type(spider)) or ""
    broken = [one for one in await newest_visits(project, spider.name) if one.failure in FAILED][:MOST_PAGES]
    before = await _copies(project, await _earlier(project, broken[:MOST_TRACED]))
    tied, goals = await _tie(spider, file, before)
    pages = await _copies(project, broken)
    samples, found = [], Counter[SelectorUse]()
    for copy in pages:
        page = Page(copy, spider=spider)
        with traced(file) as noted:
            await _items(spider, page)
        found.update(call for call, texts in noted.items() if any(texts))
        samples.append(await _sample(project, spider, page, list(goals.values())))
    lost = {name: call for name, call in tied.items() if found[call] < 0.5 * len(pages)}
    wanted = [goals[name] for name in lost]
    known = [one for one in samples if one.values]
    findings = induce(wanted, samples, plain_css=True) if wanted and known else []
    proposals = {one.field: one for one in findings}
    lines = [_proposed(name, call, proposals.get(name), goals[name], known) for name, call in sorted(lost.items())]
    return PythonHealing(spider=spider.name, file=file, pages=len(broken), fields=lines, diff=_diff(file, lost, lines))


async def _earlier(project: Project, broken: Sequence[PageFacts]) -> list[PageFacts]:
    """The last visit of each page that could be parsed, or of any page that could."""
    found = []
    for one in broken:
        good = [visit for visit in await project.records.visits(one.fingerprint) if not visit.failure]
        found += [visit for visit in good[-1:] if visit.archive_ref and visit.spider == one.spider]
    return found


async def _copies(project: Project, visits: Sequence[PageFacts]) -> list[Snapshot]:
    copies = await project.archive.get_many([one.archive_ref for one in visits])
    return [copy for copy in copies if not isinstance(copy, Permanent)]


async def _items(spider: Spider, page: Page) -> list[Item]:
    try:
        parsed = await run_callback(spider, page.kind, page)
    except ParseFailed:
        return []
    return [one for one in parsed.items if isinstance(one, Item)]


async def _tie(spider: Spider, file: str, copies: Sequence[Snapshot]) -> tuple[dict[str, SelectorUse], dict[str, Goal]]:
    """By field: the call that found its text on most of these pages, and what is wanted of the field."""
    votes: dict[str, Counter[SelectorUse]] = defaultdict(Counter)
    goals: dict[str, Goal] = {}
    for copy in copies:
        page = Page(copy, spider=spider)
        with traced(file) as noted:
            items = await _items(spider, page)
        for item in items[:1]:
            goals |= _goals(item)
            data = msgspec.json.decode(item_data(item))
            for name, goal in goals.items():
                value = known_value(data.get(name), goal.options)
                held = [
                    (len(texts[0]), -at, call)
                    for at, (call, texts) in enumerate(noted.items())
                    if value is not None and texts and _reads(texts[0], value, goal)
                ]
                if held:  # the text of an element around it holds the value as well
                    votes[name][min(held)[2]] += 1
    tied = {name: calls.most_common(1)[0] for name, calls in votes.items()}
    return {name: call for name, (call, count) in tied.items() if 2 * count > len(copies)}, goals


def _goals(item: Item) -> dict[str, Goal]:
    schema = schema_of(item)
    fields = msgspec.json.decode(schema.definition)["fields"] if schema is not None else {}
    return {
        name: Goal(name=name, options=TypeOptions(type=TYPES[one["type"]]), key=name in type(item).__item_key__)
        for name, one in fields.items()
        if one["type"] in TYPES and name != "url"
    }


def _reads(text: str, value: Any, goal: Goal) -> bool:
    found = known_value(text, goal.options)
    return agrees(found, value, goal) or (goal.type is FieldType.TEXT and str(value) == text)


async def _sample(project: Project, spider: Spider, page: Page, goals: Sequence[Goal]) -> Sample:
    values = None
    for url in dict.fromkeys((page.url, page.requested_url)):
        async for record in project.records.records(RecordQuery(url=url, spider=spider.name)):
            values = {goal.name: known_value(record.data.get(goal.name), goal.options) for goal in goals}
    return Sample(part=PagePart(PageView(page)), values=values, name=page.url)


def _proposed(
    name: str, call: SelectorUse, finding: Finding | None, goal: Goal, known: Sequence[Sample]
) -> ProposedLine:
    new = ""
    if finding is not None and len(finding.sources) == 1 and finding.decision is not Decision.REFUSE:
        css = finding.sources[0]["css"]
        new = css if "::" in css else f"{css}::text"
        pairs = [(one.part.view.page.css(new).get() or "", (one.values or {}).get(name)) for one in known]
        held = sum(value is not None and _reads(text, value, goal) for text, value in pairs)
        new = new if held >= 0.8 * finding.agree else ""  # as code reads it: the first text of the element
    return ProposedLine(
        field=name,
        line=call.line,
        selector=call.selector,
        new=new,
        decision=finding.decision if finding is not None and new else Decision.REFUSE,
        reason=finding.reason if finding is not None else "no record of these pages is known",
    )


def _diff(file: str, lost: dict[str, SelectorUse], lines: Sequence[ProposedLine]) -> str:
    """The spider's file with the new calls, as a unified diff."""
    source = Path(file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    edits = {lost[one.field]: one.new for one in lines if one.new}
    changed = source
    for call, new in sorted(edits.items(), key=lambda pair: (-pair[0].line, -pair[0].column)):
        begin, end = starts[call.line - 1] + call.column, starts[call.end_line - 1] + call.end_column
        made = f"{_page_name(source, call.line)}.css({new!r})".encode()
        changed = changed[:begin] + made + changed[end:]
    name = Path(file).name
    pieces = difflib.unified_diff(
        source.decode().splitlines(keepends=True), changed.decode().splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(pieces)


def _page_name(source: bytes, line: int) -> str:
    """What the callback at that line calls its page."""
    functions = [
        one
        for one in ast.walk(ast.parse(source))
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.lineno <= line <= (one.end_lineno or 0)
    ]
    named = [one.args.args for one in functions if len(one.args.args) > 1]
    return named[-1][1].arg if named else "page"
