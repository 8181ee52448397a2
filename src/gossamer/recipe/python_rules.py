"""The rules of a recipe as code: `css` and `xpath` calls in the form that a person writes, and short functions for what
these cannot do (numbers in a text, days, structured data, JSON in a page).

    python_rule(goal, sources, samples)    the expression that reads what the sources read, on all of these samples

What it does: a source can be written in several ways; each is tried on the samples, and the first one that gives what
the recipe's rule gives on every one of them is taken. How it fails: None, where no way of writing does.
Texts of sites stand in the code as literals only. python_file.py writes the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from turbohtml import Document, Element

from ..errors import GossamerError
from ..parse.page import Page
from .induction.candidates import SourceTable, compiled, value_on
from .induction.goal import Goal, Sample
from .labels import label_text, split_label, value_beside
from .model import FieldType
from .python_file import FUNCTIONS, IMPORTS, joined, literal

_MOST_WAYS = 80  # of writing one source
_MOST_LABELS = 3_000  # elements among which a label is looked for
_STEPS_UP = 3
_JSON_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|\['([^']*)'\]")
_LINKS = ("href", "src", "content", "data-src", "data-lazy-src", "data-original")
_FORMS = ("%d %B %Y", "%B %d, %Y", "%d %b %Y", "%b %d, %Y", "%d. %B %Y", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y")


def python_rule(goal: Goal, sources: Sequence[SourceTable], samples: Sequence[Sample]) -> tuple[str, ...] | None:
    """The expressions for `page` of which the first one that finds something reads on every sample what these sources
    read there; None if there are none."""
    trial = _Trial([sample.part.view.page for sample in samples])
    codes: tuple[str, ...] = ()
    for source in sources:
        wanted = _values(goal, [source], samples)
        ways = islice(dict.fromkeys(_ways(goal, source, samples)), _MOST_WAYS)
        code = next((one for one in ways if wanted is not None and trial.gives(one, wanted)), None)
        if code is None:
            return None
        codes += (code,)
    return codes if len(codes) == 1 or trial.gives(joined(codes), _values(goal, sources, samples) or []) else None


def _values(goal: Goal, sources: Sequence[SourceTable], samples: Sequence[Sample]) -> list[Any] | None:
    field = compiled(goal, sources)
    return [value_on(field, sample) for sample in samples] if field is not None else None


class _Trial:
    """Runs expressions of this module on pages, with the functions that their file will have."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self._pages = pages
        lines = [line for _, line in IMPORTS]
        lines += ["from gossamer import Money", "from gossamer.errors import InvalidUrl", "Page = object"]
        text = "\n".join(["from __future__ import annotations", *lines])
        self._names: dict[str, Any] = {}
        exec("\n".join([text, *FUNCTIONS.values()]), self._names)  # noqa: S102 - all of it is text of this module

    def gives(self, code: str, wanted: Sequence[Any]) -> bool:
        compiled_code = compile(code, "<rule>", "eval")
        for page, value in zip(self._pages, wanted, strict=True):
            try:
                found = eval(compiled_code, {**self._names, "page": page})  # noqa: S307 - sites are in it as literals
            except (GossamerError, ArithmeticError, ValueError, TypeError, LookupError, AttributeError):
                return False
            if found != value or isinstance(found, bool) != isinstance(value, bool):
                return False
        return True


def _ways(goal: Goal, source: SourceTable, samples: Sequence[Sample]) -> Iterator[str]:
    for text, is_data in _texts(goal, source, samples):
        yield from _readings(goal, source, text, is_data=is_data)


# What finds the text: an expression of a text, "" if there is none; of data: any value, None if there is none.


def _texts(goal: Goal, source: SourceTable, samples: Sequence[Sample]) -> Iterator[tuple[str, bool]]:
    if "structured" in source:
        yield _stated(source["structured"]), True
    elif "json" in source:
        steps = _steps(source["json"])
        if steps is not None:
            if "css" in source:
                css = source["css"] if "::" in source["css"] else f"{source['css']}::text"
                whole = f"first_json(page.css({literal(css)}).getall())"
            else:
                whole = f"json_behind(page.text, {literal(source.get('after', ''))})"
            yield f"inside({', '.join([whole, *steps])})", True
    elif "label" in source:
        for code in _labelled(source["label"], source.get("css", ""), samples):
            yield code, False
    elif "cents" in source:
        whole, cents = (f"page.css({literal(source[name])}).text" for name in ("css", "cents"))
        yield f'{whole}.strip(" .,") + "." + {cents}.strip(" .,")', False
    else:
        name = "xpath" if "xpath" in source else "css"
        if goal.type is FieldType.URL and name == "css" and "::" not in source[name]:
            for attribute in _LINKS:
                yield f"page.css({literal(f'{source[name]}::attr({attribute})')})", False
        found = f"page.{name}({literal(source[name])})"
        yield found, False
        yield f'next((one.text for one in {found} if one.text), "")', False


def _stated(path: str) -> str:
    first, _, rest = path.partition(".")
    if first.lower() in ("opengraph", "meta"):
        return f'page.structured()["{first.lower()}"].get({literal(rest)})'
    steps = [first, *rest.split(".")] if rest else [first]
    return f"stated(page, {', '.join(map(literal, steps))})"


def _steps(path: str) -> list[str] | None:
    """`$.a[0].b` as steps; None for a path that is more than steps."""
    rest, steps = path.removeprefix("$"), []
    while rest:
        step = _JSON_STEP.match(rest)
        if step is None:
            return None
        steps.append(step[2] if step[2] is not None else literal(step[1] if step[1] is not None else step[3]))
        rest = rest[step.end() :]
    return steps


def _labelled(label: str, css: str, samples: Sequence[Sample]) -> Iterator[str]:
    """XPath to what stands beside a label, by how it stands on the samples."""
    begin = f"page.css({literal(css)}).xpath" if css else "page.xpath"
    axis = ".//" if css else "//"
    wanted = label_text(label)
    for sample in samples:
        page = sample.part.view.page
        roots = [one.root for one in page.css(css)] if css else [page.tree]
        for root in roots[:5]:
            if not isinstance(root, Document | Element):
                continue
            for element in root.select("*")[:_MOST_LABELS]:
                if len(element.text) <= 400 and (found := value_beside(element, wanted)) is not None:
                    for path, cut in _beside(element, wanted, found):
                        yield f"{begin}({literal(axis + path)})" + (
                            f".text.partition({literal(cut)})[2]" if cut else ""
                        )
                    break


def _beside(element: Element, label: str, found: Any) -> Iterator[tuple[str, str]]:
    """XPath to the value, and the sign behind which it stands in the found text."""
    if label_text(element.text) != label:
        own = " ".join(element.text.split())
        head, colon, _ = split_label(own)
        if head:
            words = f"{own[: own.find(colon)]}{colon}"
            if (quoted := _xpath_text(words)) is not None:
                yield f"{element.tag}[starts-with(normalize-space(), {quoted})]", colon
                yield f"{element.tag}/text()[starts-with(normalize-space(), {quoted})]", colon
        return
    here = element
    for _ in range(_STEPS_UP):
        quoted = _xpath_text(" ".join(here.text.split()))
        if quoted is None:
            return
        place = f"{here.tag}[normalize-space()={quoted}]"
        if isinstance(found, Element):
            yield f"{place}/following-sibling::{found.tag if found.tag in ('td', 'dd') else '*'}[1]", ""
            yield f"{place}/following-sibling::*[1]", ""
        else:
            yield f"{place}/following-sibling::text()[normalize-space()][1]", ""
            yield f"{place}/following-sibling::text()[normalize-space()][1]", ":"
        if here.tag == "th":
            yield f"td[position() = count(//{place}/preceding-sibling::th) + 1]", ""
        parent = here.parent
        if not isinstance(parent, Element) or label_text(parent.text) != label:
            return
        here = parent


def _xpath_text(words: str) -> str | None:
    quote = "'" if "'" not in words else '"'
    return f"{quote}{words}{quote}" if quote not in words else None


# What reads the text as a value of the field's type.


def _readings(goal: Goal, source: SourceTable, found: str, *, is_data: bool) -> Iterator[str]:
    """The ways to read it. `found` is what a call of `css` or `xpath` gives, a text already, or data."""
    is_call = found.startswith("page.") and found.endswith(")") and not is_data and ".strip(" not in found
    text = f"{found}.text" if is_call else found
    after = "" if "json" in source else source.get("after", "")
    before = source.get("before", "")
    cut = text if not is_data else f'str({found} or "")'
    if after:
        cut = f"{cut}.partition({literal(after)})[2]"
    if before:
        cut = f"{cut}.partition({literal(before)})[0]"
    is_cut = bool(after or before) or not (is_call or is_data)
    options = goal.options
    kind = goal.type
    if kind is FieldType.URL:
        if is_call:
            yield f"address(page, {found}.get())"
        yield f"address(page, {found if is_data else cut})"
    elif kind is FieldType.DAY:
        yield from _days(source, cut)
    elif kind is FieldType.BOOL:
        yield from _booleans(source, found if is_data else "", cut)
    elif kind is FieldType.MONEY:
        currency = source.get("currency", options.currency)
        given = f", {literal(currency)}" if currency else ""
        if "nth" in source or "scale" in source:
            for point in (".", ","):
                how = _number_options(source, point)
                yield f"number(lambda amount: Money(amount{given or ', ' + literal('')}), {cut}{how})"
        else:
            yield f"Money.parse({cut if not is_data or is_cut else f'str({found})'}{given})"
            if is_data:
                yield f"number(lambda amount: Money(amount{given or ', ' + literal('')}), {found})"
    elif kind in (FieldType.INT, FieldType.FLOAT):
        read = "int" if kind is FieldType.INT else "float"
        how = _number_options(source, source.get("decimal", "."))
        yield f"number({read}, {found if is_data and not is_cut else cut}{how})"
    elif words := source.get("words"):
        table = ", ".join(f"{literal(one)}: {literal(value)}" for value, some in words.items() for one in some)
        yield f"{{{table}}}.get({cut})"
        yield f"{{{table}}}.get({cut}.strip())"
    elif is_data and not is_cut:
        yield found
        yield f"{cut} or None"
    elif is_call and not is_cut:
        if "::attr(" in found or "/@" in found:
            yield f"{found}.get()"
        yield f"{text} or None"
    else:
        yield f"{cut}.strip() or None"
        yield f'{cut}.strip(" :") or None'


def _number_options(source: SourceTable, point: str) -> str:
    how = f", nth={source['nth']}" if "nth" in source else ""
    how += f", point={literal(point)}" if point != "." else ""
    return how + (f", scale={literal(format(source['scale'], 'g'))}" if "scale" in source else "")


def _days(source: SourceTable, text: str) -> Iterator[str]:
    if form := source.get("format"):
        yield f"day({text}, {literal(form)})"
        return
    yield f"day({text}[:10], {literal('%Y-%m-%d')})"
    yield from (f"day({text}, {literal(form)})" for form in _FORMS)


def _booleans(source: SourceTable, data: str, text: str) -> Iterator[str]:
    true, false = source.get("true", []), source.get("false", [])
    if true or false:
        pairs = [*((one, True) for one in true), *((one, False) for one in false)]
        yield f"{{{', '.join(f'{literal(one)}: {value}' for one, value in pairs)}}}.get({text})"
    if data:
        yield data
    if true or false:
        return
    yield f'{{"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}}.get({text}.lower())'
