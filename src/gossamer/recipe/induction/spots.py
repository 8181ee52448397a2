"""Every place of a page that can hold a value: the text of an element, its own text beside that of its children,
attributes, structured data, JSON in scripts and attributes, and prices whose cents are an element of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
from turbohtml import Document, Element, Text

from ..labels import SILENT, split_label
from ..sources import _json_after
from .goal import Sample, plain

MOST_ELEMENTS = 6_000  # of a page
_MOST_LEAVES = 3_000  # of its JSON
_DEEPEST = 8
_LONGEST = 6_000  # characters of a text
_LONGEST_ATTRIBUTE = 400
_LONGEST_JSON = 400_000
_MOST_ATTRIBUTES = 14
_PUSHED = re.compile(r"""\.push\(\[\d{1,3},\s?"[^"\\{\[]{0,20}(?=[{\[])""")  # JSON as a string, in pieces
_MARK = re.compile(
    r"(?:(?:var|let|const)\s+)?[\w.$]{2,60}(?:\[[\"'][\w-]{1,40}[\"']\])?\s{0,3}=\s{0,3}(?:JSON\.parse\(\")?(?=[{\[])"
)
_MOST_ENTRIES, _MOST_NAMING = 40, 3  # of a list of names and values
_SAID = re.compile(r"[^\W\d_][^\"'\\\\]{0,39}")
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w{0,60}")
_NO_VALUES = frozenset(("style", "class", "id", "for", "d", "viewbox", "xmlns", "integrity", "nonce"))
_NO_LABELS = frozenset(("style", "class", "href", "src", "srcset", "action", "onclick"))
_CENTS = re.compile(r"\d{2}")
STRUCK = 'del, s, strike, .line-through, [style*="line-through"]'  # what was valid before
_DIGIT = re.compile(r"\d")


class Spot(msgspec.Struct, frozen=True):
    """A place with a text. `base` is the part of its rule that is fixed already: `{"structured": "Product.sku"}`; else
    the element is found by a locator, and `take` says what of it: "", "::text", "::attr(content)"."""

    raw: Any
    text: str
    element: Element | None = None
    take: str = ""
    base: tuple[tuple[str, str], ...] = ()
    weight: float = 1.0
    before: str = ""  # the label that a text follows directly
    cents: Element | None = None


def root_of(sample: Sample) -> Document | Element | None:
    element = sample.part.element
    if element is not None:
        return element.root if isinstance(element.root, Element) else None
    return sample.part.view.page.tree


def is_struck(spot: Spot) -> bool:
    """Does its text come from a struck-out element, or hold one with a number?"""
    element = spot.element
    if element is None:
        return False
    if element.closest(STRUCK) is not None:
        return True
    inner = element.select(STRUCK)[:10] if not spot.take and spot.cents is None else ()
    return any(_DIGIT.search(one.text) for one in inner)


def has_cents(element: Element) -> bool:
    """Is the element behind it two digits?"""
    after = element.next_sibling
    while after is not None and not isinstance(after, Element):
        if isinstance(after, Text) and after.data.strip(" .,"):
            return False
        after = after.next_sibling
    return isinstance(after, Element) and _CENTS.fullmatch(after.text.strip(" .,")) is not None


def spots_of(sample: Sample) -> list[Spot]:
    """All spots of a sample, in the order of the page; data last."""
    root = root_of(sample)
    found: list[Spot] = []
    if root is not None:
        elements: list[Element] = root.select("*")[:MOST_ELEMENTS]
        if isinstance(root, Element):
            elements = [root, *elements]
        for element in elements:
            found += _spots_in(element)
    if sample.part.element is None:
        found += _data_spots(sample)
    return found


def _spots_in(element: Element) -> Iterator[Spot]:
    tag = element.tag
    if tag in SILENT and tag != "title":
        return
    if tag not in ("link", "meta"):
        whole = element.text
        if 0 < len(whole) <= _LONGEST and (text := plain(whole)):
            yield Spot(text, text, element)
            children = element.children
            if len(children) > 1:
                yield from _own_texts(element, children)
    attrs = element.attrs
    if not attrs:
        return
    for name in list(attrs)[:_MOST_ATTRIBUTES]:
        value = element.attr(name) or ""
        if not value or name.startswith("on"):
            continue
        if value[0] in "{[" and len(value) > 8:
            yield from _json_in_attribute(element, name, value)
        elif len(value) <= _LONGEST_ATTRIBUTE and (name not in _NO_VALUES or name in ("style", "class")):
            yield Spot(value, plain(value), element, f"::attr({name})", weight=0.95)
            if ":" in value and name not in _NO_LABELS and not value.startswith(("http", "/")):
                head, colon, rest = split_label(value)
                if head and rest and not _DIGIT.search(head):
                    before = value[: value.index(colon) + 1]
                    yield Spot(rest, rest, element, f"::attr({name})", base=(("after", before),), weight=0.95)


def _own_texts(element: Element, children: Any) -> Iterator[Spot]:
    """The texts directly inside, if there are elements beside them."""
    first, previous, before = True, None, ""
    for child in children:
        if isinstance(child, Text):
            text = plain(child.data)
            if not text:
                continue
            label = before
            head, _, rest = split_label(text)
            if head and rest:
                yield Spot(rest, rest, element, "label", before=head, weight=0.95)
            # Of several texts, `::text` finds the first; the others need the label in front of them.
            if first:
                yield Spot(text, text, element, "::text", before=label, weight=0.95)
            elif label:
                yield Spot(text, text, element, "label", before=label, weight=0.95)
            first = False
            previous = text
        elif isinstance(child, Element):
            before = plain(child.text) if len(child.text) <= 80 else ""
            if _CENTS.fullmatch(before) and previous is not None and previous[-1:].isdigit():
                yield Spot(f"{previous}.{before}", f"{previous}.{before}", element, "::text", cents=child)
    elements = [child for child in children if isinstance(child, Element)]
    for left, right in pairwise(elements):
        cents = right.text.strip(" .,\u00a0")
        if len(left.text) <= 20 and _CENTS.fullmatch(cents) and left.text.strip(" .,\u00a0")[-1:].isdigit():
            whole = plain(left.text).rstrip(".,")
            yield Spot(f"{whole}.{cents}", f"{whole}.{cents}", left, "", cents=right)
        elif len(elements) > 2 and right.text.strip() in (".", ","):
            at = elements.index(right)
            after = elements[at + 1].text.strip() if at + 1 < len(elements) else ""
            if _CENTS.fullmatch(after) and left.text.strip()[-1:].isdigit():
                text = f"{plain(left.text)}.{after}"
                yield Spot(text, text, left, "", cents=elements[at + 1])


def _json_in_attribute(element: Element, name: str, value: str) -> Iterator[Spot]:
    for path, leaf in _json_leaves(value):
        yield Spot(leaf, plain(str(leaf)), element, f"::attr({name})", base=(("json", path),), weight=0.85)


def _json_leaves(text: str) -> Iterator[tuple[str, Any]]:
    if len(text) > _LONGEST_JSON:
        return
    try:
        document = msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    yield from leaves(document)


def leaves(document: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """The scalars of a JSON document with their paths, bounded. A key that looks like an id stands as `*`."""
    level = [(path, document)]
    count = 0
    for _ in range(_DEEPEST):
        inner: list[tuple[str, Any]] = []
        for where, value in level:
            if isinstance(value, dict):
                for key, one in value.items():
                    step = f".{key}" if _PLAIN_KEY.fullmatch(key) else ".*" if len(value) == 1 else None
                    if step is None and "'" not in key and "\\" not in key and len(key) <= 60:
                        step = f"['{key}']"
                    if step is not None:
                        inner.append((where + step, one))
            elif isinstance(value, list):
                inner += [(f"{where}[{at}]", one) for at, one in enumerate(value[:8])]
                inner += [(f"{where}{step}", one) for step, one in _named_entries(value)]
            elif value is not None and value != "":
                yield where, value
            count += 1
            if count > _MOST_LEAVES:
                return
        level = inner
        if not level:
            return


def _named_entries(entries: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries of a list that say what they are, as filters: `[?@.label=="Price"]`, without that word."""
    some = [one for one in entries[:_MOST_ENTRIES] if isinstance(one, dict)]
    if len(some) < 2 or len(some) < len(entries[:_MOST_ENTRIES]):
        return
    for name in list(some[0])[:_MOST_NAMING]:
        words = [one.get(name) for one in some]
        if not _PLAIN_KEY.fullmatch(name) or not all(isinstance(one, str) and _SAID.fullmatch(one) for one in words):
            continue
        if len(set(words)) == len(words):
            for word, one in zip(words, some, strict=True):
                yield f'[?@.{name}=="{word}"]', {key: inner for key, inner in one.items() if key != name}


def _data_spots(sample: Sample) -> Iterator[Spot]:
    view = sample.part.view
    data = view.structured()
    seen: set[str] = set()
    for family in ("json_ld", "microdata"):
        for path, leaf in _typed_leaves(data.get(family, []), family == "microdata"):
            if path not in seen:
                seen.add(path)
                yield Spot(leaf, plain(str(leaf)), base=(("structured", path),))
    for family, weight in (("opengraph", 0.9), ("meta", 0.85)):
        for name, value in list(data.get(family, {}).items())[:200]:
            if isinstance(value, str) and len(value) <= _LONGEST:
                yield Spot(value, plain(value), base=(("structured", f"{family}.{name}"),), weight=weight)
    tree = view.page.tree
    if tree is not None:
        for script in tree.select("script")[:60]:
            yield from _script_spots(script)
    elif (document := view.json()) is not msgspec.UNSET:
        for path, leaf in leaves(document):
            yield Spot(leaf, plain(str(leaf)), base=(("json", path),), weight=0.9)


def _typed_leaves(blocks: Any, micro: bool) -> Iterator[tuple[str, Any]]:
    """Paths as `structured` takes them: a type of schema.org, and properties below it."""
    level: list[tuple[str, Any]] = [("", block) for block in blocks[:100]]
    count = 0
    for _ in range(_DEEPEST):
        inner: list[tuple[str, Any]] = []
        for path, value in level:
            count += 1
            if count > _MOST_LEAVES:
                return
            if isinstance(value, list):
                inner += [(path, one) for one in value[:8]]
            elif isinstance(value, dict):
                given = value.get("type" if micro else "@type")
                name = given[0] if isinstance(given, list) and given else given
                kind = str(name).split(" ")[0].replace("#", "/").rpartition("/")[2] if name else ""
                table = value.get("properties", {}) if micro else value
                for key, one in table.items() if isinstance(table, dict) else ():
                    if (key.startswith("@") and key not in ("@graph", "@value")) or "." in key:
                        continue
                    if key == "@graph":
                        inner.append(("", one))
                        continue
                    if kind:
                        inner.append((f"{kind}.{key}", one))
                    if path:
                        inner.append((f"{path}.{key}", one))
            elif path and value not in (None, ""):
                yield path, value
        level = inner


def _script_spots(script: Element) -> Iterator[Spot]:
    kind = (script.attr("type") or "").lower()
    if "ld+json" in kind:
        return
    text = script.text
    if "json" in kind:
        identity = script.attr("id") or ""
        css = f"script#{identity}" if re.fullmatch(r"[A-Za-z_][\w-]{0,60}", identity) else f'script[type="{kind}"]'
        for path, leaf in _json_leaves(text):
            yield Spot(leaf, plain(str(leaf)), base=(("css", css), ("json", path)), weight=0.9)
        return
    if len(text) > _LONGEST_JSON:
        return
    for match in [*list(_MARK.finditer(text))[:10], *list(_PUSHED.finditer(text))[:10]]:
        mark = match[0].rstrip()
        document = _json_after(text, mark)
        if document is not msgspec.UNSET:
            for path, leaf in leaves(document):
                yield Spot(leaf, plain(str(leaf)), base=(("after", mark), ("json", path)), weight=0.85)
