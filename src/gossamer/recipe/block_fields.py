"""Finds the fields of repeated blocks: the places that most blocks have in common, as named fields of a recipe.

A place is identified by its class, its tag, its column in a table, its label (`<dt>City</dt><dd>...`), or, without any
name, by its position in the block. If a block is only a heading or a term, the element after it belongs to it. A value
in the same place of most blocks that is not always the same is a field, named for its class, tag, column header, label
or kind (a link, an image, a price).

How it fails: nothing raises; blocks without values have no fields. The work is limited by the number of given blocks
and of inspected elements in each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple
from unicodedata import combining, normalize

import msgspec
from turbohtml import Element, Text

from ..parse.selectors import Selector
from .stable_selectors import NAME, PRICE, stable_classes

LONGEST = 4_000  # characters of a block; a larger one is a section
LEADERS = frozenset(("dt", "h2", "h3", "h4"))  # blocks whose text is in the next element
_MOST_FIELDS = 10
_MOST_INSIDE = 200  # elements of a block that are inspected
_DEEPEST = 5  # steps to a place without a name
_MOST_UNNAMED = 12  # such places of a block
_MOST_PLACES = 40  # inspected closely
_IN_MOST = 0.8  # of the blocks
_DIFFERENT = 0.4  # share of distinct values that an unnamed place needs; with fewer, the text is a label
_NAMES = {"h1": "title", "h2": "title", "h3": "title", "h4": "title", "h5": "title", "a": "link", "img": "image",
          "time": "time", "p": "text", "blockquote": "text", "cite": "author", "figcaption": "text",
          "summary": "title", "dt": "title"}  # fmt: skip
_PLAIN = frozenset(("b", "em", "ins", "small", "span", "strong"))
_ALONE = _PLAIN | {"dd"}  # without a class they count if they hold a price, or are alone
_LISTS = ("ol", "ul")
_SILENT = frozenset(("button", "noscript", "option", "script", "style", "template"))  # they have no value
_HEADS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_SAYING = ("itemprop", "data-testid", "data-test", "data-qa", "data-cy")  # attributes that name what is in there
_NO_PAGE = re.compile(r"(?:mailto|tel|sms|javascript):", re.IGNORECASE)
_DATED = re.compile(r"\d{4}-\d\d-\d\d(?:$|[T ]\d\d:)")
_CELLS = ("td", "th")
_WORD = re.compile(r"[a-z]+")
_COLUMN = re.compile(r"(?:td|th):nth-(?:last-)?child\(\d+\)")
_LABELLED = re.compile(r'dt:contains\("(.+)"\) \+ dd')
_LABEL = re.compile(r"""[^"'\\]{1,40}""")
_NAMED = re.compile(r"""(?:a?\.|\[[a-z-]+=")([\w-]+)(?:"\])?(?: li)?""")
_HASH = re.compile(r"(?<=[A-Za-z])__(?=\w*[A-Z])\w{5}$")  # that a build tool appends to a name
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


class BlockField(msgspec.Struct, frozen=True):
    """`rule` is the field's table as TOML; `unique`: its values identify the blocks; `filled`: for each block, whether
    it has a value."""

    name: str
    rule: str
    unique: bool
    filled: tuple[bool, ...]


class _Place(NamedTuple):
    """The place of a value in a block. `column` is that of a table; 0 elsewhere."""

    path: str
    by: str = "css"
    column: int = 0

    @property
    def may_repeat(self) -> bool:
        """True for a named place, whose values are not labels even if few are distinct."""
        return self.column > 0 or _LABELLED.fullmatch(self.path) is not None or _NAMED.fullmatch(self.path) is not None

    def find(self, block: Element) -> list[Element]:
        if self.path.startswith(":scope >"):
            return block.select(self.path)  # counts siblings many times faster than XPath
        part = Selector(block)
        found = part.css(self.path) if self.by == "css" else part.xpath(self.path)
        return [one.root for one in found if isinstance(one.root, Element)]


def fields_of(blocks: list[Element]) -> list[BlockField]:
    """The fields of the blocks, in the order in which the first block has them."""
    heads = _heads(blocks[0]) if blocks[0].tag == "tr" else []
    fields: list[BlockField] = []
    shown: set[tuple[str, ...]] = set()
    if blocks[0].tag == "a":  # the block itself is the link
        links = [one.attr("href") or "" for one in blocks]
        fields.append(_as_field("link", '{ css = ":scope::attr(href)", type = "url" }', links))
    for place in _places(blocks):
        if len(fields) >= _MOST_FIELDS:
            break
        field = _field(place, blocks, heads, shown)
        if field is not None and field.name not in {one.name for one in fields}:
            fields.append(field)
    texts = [_value(block.select("a")[:1], None) for block in blocks]
    titled = any(field.name == "title" for field in fields) or tuple(texts) in shown
    if not titled and all(texts) and len(set(texts)) >= _DIFFERENT * len(texts):
        fields.append(_as_field("title", '{ css = "a" }', texts))
    return fields


def selectors_in(block: Element) -> list[str]:
    """The selectors of a block's named elements, without positional ones."""
    found = (place.path for place in _places_in(block) if place.by == "css")
    return [path for path in dict.fromkeys(found) if ":scope" not in path and ":contains" not in path]


def follower(block: Element) -> Element | None:
    """The element after a block that is only a heading or a term."""
    found = next((one for one in block.next_siblings if isinstance(one, Element)), None)
    return None if found is None or found.tag in LEADERS else found


def _places(blocks: list[Element]) -> list[_Place]:
    """The places that most blocks have; those that all have come first."""
    counts = Counter(place for block in blocks for place in dict.fromkeys(_places_in(block)))
    if blocks[0].tag == "tr" and any(_is_spanned(block) for block in blocks):
        counts = Counter({place: count for place, count in counts.items() if not place.column})
        counts.update(dict.fromkeys(_spanned_columns(blocks), len(blocks)))
    most = [(place, count) for place, count in counts.items() if count >= _IN_MOST * len(blocks)]
    return [place for place, _ in sorted(most, key=lambda one: -one[1])][:_MOST_PLACES]


def _field(place: _Place, blocks: list[Element], heads: list[str], shown: set[tuple[str, ...]]) -> BlockField | None:
    """The place as a field; None if it is empty in most blocks, has the same value in all, or repeats another field."""
    if place.path == ":scope" and blocks[0].tag not in LEADERS and len({_own_text(block) for block in blocks}) == 1:
        return None  # " by " between two fields is a label
    found = [place.find(block) for block in blocks]
    tag = next((matches[0].tag for matches in found if matches), "")
    attribute = {"a": "href", "img": "src", "time": "datetime"}.get(tag) if place.path != ":scope" else None
    many = sum(len(matches) > 1 for matches in found) >= 0.3 * len(blocks)
    if many and attribute:
        many = place.path != tag  # the first link or image stands for those without a class
        attribute = None if many else attribute
    values = [_value(matches, attribute) for matches in found]
    if attribute and not all(_can_be_read(value, attribute) for value in values):
        attribute = None
        values = [_value(matches, None) for matches in found]
    told = [value for value in values if value]
    # Lists, named places and table columns are not labels: tags, scores and towns may repeat.
    fewest = 2 if many or place.may_repeat else max(2, _DIFFERENT * len(told))
    if len(told) < _IN_MOST * len(blocks) or len(set(told)) < fewest or tuple(values) in shown:
        return None
    shown.add(tuple(values))
    name = _name(place, tag, told, heads, many=many, linked=attribute in ("href", "src"))
    return _as_field(name, _rule(place, attribute, told, many=many), values, many=many)


def _can_be_read(value: str, attribute: str) -> bool:
    """False for a link to no page, and for a date that is not machine-readable."""
    return _DATED.match(value) is not None if attribute == "datetime" else _NO_PAGE.match(value) is None


def _as_field(name: str, rule: str, values: list[str], *, many: bool = False) -> BlockField:
    filled = tuple(map(bool, values))
    return BlockField(name, rule, all(filled) and len(set(values)) == len(values) and not many, filled)


def _places_in(block: Element) -> Iterator[_Place]:
    """By class where there is one, else by label, column, tag or position."""
    if block.tag in LEADERS:
        yield _Place(":scope")
        yield from (_Place("a") for _ in block.select("a")[:1])
        if follower(block) is not None:
            yield _Place("following-sibling::*[1]", "xpath")
        return
    inside = block.select("*")[:_MOST_INSIDE]
    times = Counter(element.tag for element in inside)
    classes = [stable_classes(element) for element in inside]
    users = Counter(name for names in classes for name in names)
    unnamed = 0
    for element, names in zip(inside, classes, strict=True):
        if element.tag in _SILENT or _is_frame(element):
            continue
        listed = " li" if element.tag in _LISTS and element.select_one("li li") is None else ""
        said = _said(element)
        if names and (element.tag in _NAMES or listed or len(element.children) <= 3):
            own = min(names, key=users.__getitem__)  # of "cell name", the class that no other element of the block has
            yield _Place(f".{own}{listed}" if element.tag != "a" else f"a.{own}")
        elif said:
            yield _Place(f"{said}{listed}")
        elif element.tag == "li" and isinstance(around := element.parent, Element) and _has_name(around):
            continue  # one of a list that is a field
        elif element.tag in _CELLS and element.parent is block:
            at = 1 + sum(isinstance(one, Element) for one in element.previous_siblings)
            yield _Place(f"{element.tag}:nth-child({at})", column=at)
        elif element.tag == "dd" and times["dd"] > 1 and (label := _label_of(element)):
            yield _Place(f'dt:contains("{label}") + dd')
        elif element.tag in _NAMES or (
            element.tag in _ALONE and (times[element.tag] == 1 or PRICE.search(element.text[:40]))
        ):
            yield _Place(element.tag)
        elif unnamed < _MOST_UNNAMED and element.select_one("*") is None and element.text.strip():
            unnamed += 1
            if path := _position(element, block):
                yield _Place(path)
    if any(isinstance(one, Text) and one.data.strip() for one in block.children):
        yield _Place(":scope")


def _said(element: Element) -> str:
    """The selector of an attribute that names the element's content; "" without one."""
    said = ((name, element.attr(name) or "") for name in _SAYING)
    return next((f'[{name}="{value}"]' for name, value in said if NAME.fullmatch(value)), "")


def _has_name(element: Element) -> bool:
    return bool(stable_classes(element) or _said(element))


def _own_text(block: Element) -> str:
    return " ".join(one.data.strip() for one in block.children if isinstance(one, Text)).strip()


def _is_frame(element: Element) -> bool:
    """True for an element without text that only contains named elements."""
    if element.tag == "a" or any(isinstance(one, Text) and one.data.strip() for one in element.children):
        return False
    inside = [one for one in element.children if isinstance(one, Element) and one.text.strip()]
    if any(one.tag == "p" and not one.attr("class") for one in inside):
        return False  # paragraphs: a text
    return sum(one.tag in _HEADS or bool(stable_classes(one)) for one in inside) > 1


def _label_of(value: Element) -> str:
    """The text of the <dt> before a <dd>; "" if no rule can be made from it."""
    before = next((one for one in value.previous_siblings if isinstance(one, Element)), None)
    label = " ".join(before.text.split()) if before is not None and before.tag == "dt" else ""
    return label if _LABEL.fullmatch(label) else ""


def _position(element: Element, block: Element) -> str:
    """The path from the block to an element in it: ":scope > div:nth-child(2) > span:nth-child(1)"; "" if it is far."""
    steps: list[str] = []
    at: object = element
    while at is not block:
        if not isinstance(at, Element) or len(steps) >= _DEEPEST:
            return ""
        steps.append(f"{at.tag}:nth-child({1 + sum(isinstance(one, Element) for one in at.previous_siblings)})")
        at = at.parent
    return " > ".join([":scope", *reversed(steps)])


def _cells(row: Element) -> list[Element]:
    return [one for one in row.children if isinstance(one, Element) and one.tag in _CELLS]


def _is_spanned(row: Element) -> bool:
    return any((one.attr("rowspan") or "1") != "1" for one in _cells(row))


def _spanned_columns(rows: list[Element]) -> Iterator[_Place]:
    """The columns of a table whose first cells span several rows: counted from the end, which all rows have; a missing
    cell is in the nearest row before that has that many cells."""
    counts = [len(_cells(row)) for row in rows]
    most, fewest = max(counts), min(counts)
    for column in range(1, most + 1):
        behind = most - column
        if behind < fewest:
            yield _Place(f"td:nth-last-child({behind + 1})", column=column)
        else:
            rows_so_far = f"(self::tr|preceding-sibling::tr)[count(td|th)>{behind}][last()]"
            yield _Place(f"{rows_so_far}/*[last()-{behind}]", "xpath", column)


def _heads(row: Element) -> list[str]:
    """The column headers of the table around a row, as names."""
    table = row.parent
    while isinstance(table, Element) and table.tag != "table":
        table = table.parent
    if not isinstance(table, Element):
        return []
    first = next((one for one in table.select("tr")[:3] if one.select_one("th") is not None), None)
    cells = first.select("th")[:50] if first is not None else []
    return [words_of(cell.text[:60]) for cell in cells] if len(cells) > 1 else []


def words_of(text: str) -> str:
    """A name in lower case without punctuation: "Größe (m²)" gives "grosse_m"."""
    plain = "".join(char for char in normalize("NFKD", text.casefold()) if not combining(char))
    return "_".join(_WORD.findall(plain)[:3])


def named_words(name: str) -> list[str]:
    """The last words of a name: "product-card__unitPrice" gives "unit", "price"; the words before give the place."""
    words = _WORD.findall(_HUMP.sub("_", _HASH.sub("", name)).lower())
    return words[-3:] if "of" in words[-2:] else words[-2:]


def _value(matches: list[Element], attribute: str | None) -> str:
    if not matches:
        return ""
    if attribute:
        return (matches[0].attr(attribute) or "").strip()
    if len(matches) == 1:
        return " ".join(matches[0].text[:LONGEST].split())
    return "|".join(one.text[:100] for one in matches)


def _name(place: _Place, tag: str, values: list[str], heads: list[str], *, many: bool, linked: bool) -> str:
    if linked:
        return "link" if tag == "a" else "image"
    if place.column:
        head = heads[place.column - 1] if place.column <= len(heads) else ""
        return head or f"column_{place.column}"
    labelled = _LABELLED.fullmatch(place.path)
    named = _NAMED.fullmatch(place.path)
    name = words_of(labelled[1]) if labelled else "_".join(named_words(named[1])) if named else ""
    if not name and place.path != tag and place.path != ":scope" and PRICE.search(values[0][:40]):
        name = "price"
    if not name and place.path.startswith(":scope >"):
        name = f"part_{'_'.join(re.findall(r'[0-9]+', place.path))}"
    if not name:
        plain = tag if tag in _PLAIN else "text"
        name = "price" if tag in _PLAIN and PRICE.search(values[0]) else _NAMES.get(tag, plain)
    return f"{name}s" if many and not name.endswith("s") else name


def _rule(place: _Place, attribute: str | None, values: list[str], *, many: bool) -> str:
    where = f"{place.by} = {_quoted(place.path + (f'::attr({attribute})' if attribute else ''))}"
    if attribute:
        kind = "url" if attribute != "datetime" else "day" if all(len(value) == 10 for value in values) else "date"
        return f'{{ {where}, type = "{kind}" }}'
    if many:
        return f'{{ {where}, type = "list" }}'
    if all(len(value) <= 40 and PRICE.search(value) for value in values):
        return f'{{ {where}, type = "money" }}'
    return f"{{ {where} }}"


def _quoted(path: str) -> str:
    return f"'{path}'" if '"' in path else f'"{path}"'
