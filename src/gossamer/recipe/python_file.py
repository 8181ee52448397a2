"""The file of a spider that is written from a plan: imports, the functions that its rules call, the class of its items,
the class of the spider. Texts of sites stand in it as literals only.

    python_spider(plan)                    the text of a spider with the expressions of python_rules.py

How it fails: nothing raises; whoever writes the text compiles it before (a name in the plan may be none in Python).
"""

from __future__ import annotations

import re

import msgspec

from .model import FieldType

_LONGEST_LINE = 116

_ANNOTATIONS = {
    FieldType.TEXT: "str", FieldType.URL: "str", FieldType.INT: "int", FieldType.FLOAT: "float",
    FieldType.BOOL: "bool", FieldType.MONEY: "Money", FieldType.DAY: "date",
}  # fmt: skip

# Functions that stand in the file of a spider that calls them.
FUNCTIONS = {
    "number": '''\
def number(kind: Callable[[Decimal], Any], text: object, nth: int = 1, point: str = ".", scale: str = "1") -> Any:
    """The nth number in a text, times `scale`; None without one. Signs that group thousands are left out."""
    groups = "'’ \\u00a0\\u202f" + ("." if point == "," else ",")
    found = re.findall(rf"-?(?:\\d{{1,3}}(?:[{groups}]\\d{{3}})+(?!\\d)|\\d+)(?:{re.escape(point)}\\d+)?", str(text))
    if len(found) < nth:
        return None
    return kind(Decimal(re.sub(f"[{groups}]", "", found[nth - 1]).replace(point, ".")) * Decimal(scale))
''',
    "day": '''\
def day(text: str, form: str) -> date | None:
    """The day that a text states; None if it states none in this form."""
    try:
        return datetime.strptime(text.strip(), form).date()
    except ValueError:
        return None
''',
    "address": '''\
def address(page: Page, text: object) -> str | None:
    """The address that a text of the page is; None for one that is no address of the web, as data: is not."""
    try:
        return page.urljoin(text.strip()) if isinstance(text, str) and text.strip() else None
    except InvalidUrl:
        return None
''',
    "stated": '''\
def stated(page: Page, kind: str, *path: str) -> Any:
    """What the page states for machines of the first thing of this kind: in JSON-LD, else in microdata."""
    data = page.structured()
    things: list[Any] = [*data["json_ld"], *data["microdata"]]
    for thing in things:
        if isinstance(thing, list):
            things += thing
        elif isinstance(thing, dict):
            things += thing.values()
            found: Any = [thing]
            if kind in re.findall(r"\\w+", str(thing.get("@type", thing.get("type")))):
                for step in path:
                    first = found[0] if isinstance(found, list) and found else found
                    found = first.get("properties", first).get(step) if isinstance(first, dict) else None
                found = found[0] if isinstance(found, list) and found else found
                if found not in (None, "", []):
                    return found
    return None
''',
    "json_behind": '''\
def json_behind(text: str, mark: str) -> Any:
    """The JSON that begins behind `mark`; None without it, and for a script that only looks like JSON."""
    rest = text.partition(mark)[2]
    begin = re.search(r"[{\\[]", rest)
    try:
        return json.JSONDecoder(strict=False).raw_decode(rest, begin.start())[0] if begin is not None else None
    except (ValueError, RecursionError):
        return None
''',
    "first_json": '''\
def first_json(texts: list[str]) -> Any:
    """The first of the texts that is JSON; None if none is."""
    for text in texts:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    return None
''',
    "inside": '''\
def inside(document: Any, *steps: str | int) -> Any:
    """What stands in a JSON document at the end of these steps; None if there is nothing."""
    for step in steps:
        try:
            document = document[step]
        except (LookupError, TypeError):
            return None
    return document
''',
}
IMPORTS = (
    ("json.", "import json"),
    ("re.", "import re"),
    ("Callable[", "from collections.abc import Callable"),
    ("datetime", "from datetime import date, datetime"),
    ("Decimal", "from decimal import Decimal"),
    ("Any", "from typing import Any"),
)


class PlanField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the items, and the expressions that read it from `page`: the first one that finds something counts."""

    name: str
    type: FieldType
    code: tuple[str, ...]
    required: bool = False


class SpiderPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A spider that is to be written. `links` and `following` are CSS on the list; without `links` the start pages are
    those with the items. `allow` narrows the links to addresses that hold it."""

    class_name: str
    about: str
    start: tuple[str, ...]
    key: str
    fields: tuple[PlanField, ...]
    links: str = ""
    allow: str = ""
    following: str = ""


def python_spider(plan: SpiderPlan) -> str:
    """The text of a module with this spider."""
    code = " ".join(joined(field.code) for field in plan.fields)
    functions = [text for name, text in FUNCTIONS.items() if re.search(rf"\b{name}\(", code)]
    item = f"{plan.class_name}Item"
    fields = sorted(plan.fields, key=lambda field: not _is_demanded(field, plan))
    lines = [
        f"class {item}(Item, key={literal(plan.key or 'url')}):",
        '    """One record. A field without a default is required: a page that lacks it becomes a dead letter."""',
        "",
        *(f"    {field.name}: {_annotation(field, plan)}" for field in fields if field.name != "url"),
        "",
        "",
        f"class {plan.class_name}(Spider):",
        f'    """{"A list leads to the pages with the items." if plan.links else "Every start page has one item."}"""',
        "",
        f"    start_urls = [{', '.join(map(literal, plan.start))}]",
        "",
        *_list_lines(plan),
        f"    def {'item' if plan.links else 'parse'}(self, page: Page) -> Results:",
        f"        yield {item}(",
        *(["            url=page.url,"] if all(field.name != "url" for field in fields) else []),
        *(f"            {field.name}={_shown(field, plan)}," for field in plan.fields),
        "        )",
    ]
    body = "\n".join(lines) + "\n"
    used = "\n\n".join(functions) + body
    imports = [line for sign, line in IMPORTS if re.search(rf"(?<![\w.\"]){re.escape(sign)}", used)]
    if "datetime" not in used and re.search(r"\bdate\b", body):
        imports.append("from datetime import date")
    names = ["Item", *(["Money"] if "Money" in used else []), "Page", "Results", "Spider"]
    head = [
        f'"""{plan.about}"""',
        "",
        "from __future__ import annotations",
        "",
        *([*imports, ""] if imports else []),
        f"from gossamer import {', '.join(names)}",
        *(["from gossamer.errors import InvalidUrl"] if "InvalidUrl" in used else []),
    ]
    return "\n\n\n".join(["\n".join(head), *(text.rstrip("\n") for text in functions), body])


def _list_lines(plan: SpiderPlan) -> list[str]:
    if not plan.links:
        return []
    if plan.allow:
        links = f"page.links(restrict={literal(plan.links)}, allow={literal(re.escape(plan.allow))})"
        if plan.links == "a":
            links = f"page.links(allow={literal(re.escape(plan.allow))})"
    else:
        links = literal(plan.links)
    lines = [
        "    def parse(self, page: Page) -> Results:",
        f"        yield from page.follow_all({links}, self.item, priority=8)",
    ]
    if plan.following:
        lines.append(f"        yield from page.follow_all({literal(plan.following)})")
    return [*lines, ""]


def _is_demanded(field: PlanField, plan: SpiderPlan) -> bool:
    return field.required or field.name == plan.key


def _annotation(field: PlanField, plan: SpiderPlan) -> str:
    name = _ANNOTATIONS[field.type]
    return name if _is_demanded(field, plan) else f"{name} | None = None"


def _shown(field: PlanField, plan: SpiderPlan) -> str:
    """An empty text in a required field is missing anyway."""
    code = tuple(one.removesuffix(" or None") for one in field.code) if _is_demanded(field, plan) else field.code
    if len(code) == 1 or len(joined(code)) <= _LONGEST_LINE:
        return joined(code)
    return "(\n                " + joined(code, "\n                or ") + "\n            )"


def joined(code: tuple[str, ...], between: str = " or ") -> str:
    """The alternatives as one expression. An empty text leads to the next one anyway."""
    return between.join(one.removesuffix(" or None") for one in code) if len(code) > 1 else code[0]


def literal(text: str) -> str:
    """A text as Python writes it, in double quotes where that needs no escapes."""
    return f'"{text}"' if text.isprintable() and '"' not in text and "\\" not in text else repr(text)
