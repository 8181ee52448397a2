"""RDFa: what the attributes of a page state, as expanded JSON-LD: one object for each thing that is spoken of.

RDFa 1.1 in HTML, and RDFa 1.0 where the page says so (XHTML+RDFa 1.0, which many old sites still send). Read are:
vocab, prefix, xmlns:*, about, resource, href, src, typeof, property, rel, rev, content, datatype, datetime and
xml:lang. Left out: `inlist` (values come one by one), `role`, and `lang`, because most pages declare a language
that their metadata do not have.

Elements that state nothing are not visited. What a hostile page can cost is bounded: statements are counted, and
texts are paid from one allowance (see layout.py). Nothing raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from turbohtml import Doctype, Document, Element

from .jsonld import DEEPEST
from .layout import Allowance
from .rdfa_literals import MARKUP_TYPES, literal, time_type, xml_inside
from .rdfa_names import TERMS, TYPE, USES_VOCABULARY, Names

_MOST_STATEMENTS = 20_000
_STATING = "[property],[typeof],[vocab],[rel],[rev]"
_READ = frozenset(
    ["about", "content", "datatype", "datetime", "href", "property", "rel", "resource", "rev", "src", "typeof", "vocab"]
)

Object = dict[str, str]  # {"@id": ...} or {"@value": ...} with "@type" or "@language"


class _Place(NamedTuple):
    """What an element hands to those inside it."""

    names: Names
    subject: str
    object: str
    waiting: tuple[tuple[str, bool], ...] = ()  # relations that lack their object; True: subject and object swap
    level: int = 0  # of properties inside properties


class _Spoken(NamedTuple):
    """What an element speaks of: the subject of its statements, the object of its rel, and what its typeof types."""

    subject: str
    object: str | None
    typed: str | None
    named: bool = True  # False: it only passes on what the place around it speaks of


def rdfa_statements(document: Document, base_url: str) -> list[dict[str, Any]]:
    """The things that the page speaks of, in the order of their first mention. Any: expanded JSON-LD."""
    inside = _stating(document)
    return _Reading(document, base_url, inside).statements() if inside else []


def _stating(document: Document) -> dict[Element, list[Element]]:
    """The elements that state something, and all those around them: each with its children among them, in order."""
    elements = document.select(_STATING)
    old = _is_old(document)
    terms_mean_nothing = not old and not any("vocab" in element.attrs for element in elements)
    inside: dict[Element, list[Element]] = {}
    for element in elements:
        if terms_mean_nothing and not _may_state(element):
            continue
        inside[element] = []
        node = element
        while isinstance(parent := node.parent, Element):
            siblings = inside.get(parent)
            if siblings is not None:
                siblings.append(node)
                break
            inside[parent] = [node]
            node = parent
    return inside


def _may_state(element: Element) -> bool:
    """False for the many elements that have no more than rel="nofollow", rel="stylesheet" and the like."""
    if element.attr("property") is not None or "typeof" in element.attrs:
        return True
    words = f"{element.attr('rel') or ''} {element.attr('rev') or ''}".lower()
    return ":" in words or any(word in TERMS for word in words.split())


def _is_old(document: Document) -> bool:
    root = document.root
    version = (root.attr("version") or "") if root is not None else ""
    if "RDFa" in version:
        return "RDFa 1.0" in version
    return any(isinstance(node, Doctype) and "RDFa 1.0" in (node.public_id or "") for node in document.children)


class _Reading:
    def __init__(self, document: Document, base_url: str, inside: Mapping[Element, list[Element]]) -> None:
        self._root = document.root
        self._inside = inside
        self._names = Names(base_url, old=_is_old(document))
        self._page = self._names.address("")
        self._allowance = Allowance()
        self._things: dict[str, dict[str, dict[tuple[tuple[str, str], ...], Object]]] = {}
        self._count = 0
        self._blanks = 0
        self._level = 0
        self._named_blanks: dict[str, str] = {}

    def statements(self) -> list[dict[str, Any]]:
        stack: list[tuple[Element, _Place]] = []
        if self._root is not None and self._root in self._inside:
            stack.append((self._root, _Place(self._names, self._page, self._page)))
        while stack and self._count < _MOST_STATEMENTS:
            element, place = stack.pop()
            within = self._visit(element, place)
            if within is not None:
                stack.extend((child, within) for child in reversed(self._inside[element]))
        return self._expanded()

    def _visit(self, element: Element, place: _Place) -> _Place | None:
        """State what the element states. Returns what holds inside it; None when nothing inside is to be read."""
        names = place.names.inside(element)
        self._level = place.level
        got = self._attributes(element, names)
        if got.get("vocab") and names.vocabulary:
            self._state(self._page, USES_VOCABULARY, {"@id": names.vocabulary})
        spoken = (self._spoken_of_old if names.old else self._spoken_of)(element, got, names, place)
        if not spoken.named and "property" not in got:
            return place._replace(names=names)
        for relation, swapped in place.waiting:
            self._relate(place.subject, relation, spoken.subject, swapped)
        if spoken.typed is not None:
            for kind in names.listed(got.get("typeof")):
                self._state(spoken.typed, TYPE, {"@id": kind})
        relations = [(name, False) for name in names.listed(got.get("rel"))]
        relations += [(name, True) for name in names.listed(got.get("rev"))]
        if spoken.object is not None:
            for relation, swapped in relations:
                self._relate(spoken.subject, relation, spoken.object, swapped)
            relations = []
        markup = self._state_properties(element, got, names, spoken)
        if markup and names.old:
            return None  # all that is inside belongs to the literal
        level = place.level + 1 if "property" in got else place.level
        return _Place(names, spoken.subject, spoken.object or self._blank(), tuple(relations), level)

    def _attributes(self, element: Element, names: Names) -> dict[str, str]:
        """The attributes that matter, as HTML wants them read."""
        got = {name: element.attr(name) or "" for name in element.attrs if name in _READ}
        if names.old:
            return got
        if "property" in got:
            for name in ("rel", "rev"):
                if name in got:  # beside a property, plain words are link types of HTML
                    got[name] = " ".join(word for word in got[name].split() if ":" in word)
                    if not got[name]:
                        del got[name]
            if "content" not in got and ("datetime" in got or element.tag == "time"):
                got["content"] = got["datetime"] if "datetime" in got else self._text(element)
                if "datatype" not in got and (kind := time_type(got["content"])):
                    got["datatype"] = kind
        return got

    def _spoken_of(self, element: Element, got: Mapping[str, str], names: Names, place: _Place) -> _Spoken:
        is_root = element == self._root
        about = self._resource(got, names, "about")
        given = self._resource(got, names, "resource", "href", "src")
        subject = about or (self._page if is_root else place.object)
        is_typed = "typeof" in got
        if "rel" in got or "rev" in got:
            if is_typed and "about" not in got:
                given = given or self._blank()
                return _Spoken(subject, given, given)
            return _Spoken(subject, given, subject if is_typed else None)
        if "property" in got and "content" not in got and "datatype" not in got:
            if not is_typed:
                return _Spoken(subject, subject, None)
            typed = subject if about or is_root else given or self._blank()
            return _Spoken(subject, typed, typed)
        named = about or given or (self._page if is_root else None)
        if named is None and is_typed and element.tag not in ("head", "body"):
            named = self._blank()
        subject = named or place.object
        return _Spoken(subject, subject, subject if is_typed else None, named=named is not None or is_typed)

    def _spoken_of_old(self, element: Element, got: Mapping[str, str], names: Names, place: _Place) -> _Spoken:
        """As RDFa 1.0 has it: src names a subject, and typeof always types the subject."""
        has_relation = "rel" in got or "rev" in got
        named = self._resource(
            got, names, *(("about", "src") if has_relation else ("about", "src", "resource", "href"))
        )
        if named is None and (element == self._root or element.tag in ("head", "body")):
            named = self._page
        if named is None and "typeof" in got:
            named = self._blank()
        subject = named or place.object
        given = self._resource(got, names, "resource", "href") if has_relation else subject
        typed = subject if "typeof" in got else None
        return _Spoken(subject, given, typed, named=named is not None or has_relation)

    def _state_properties(self, element: Element, got: Mapping[str, str], names: Names, spoken: _Spoken) -> bool:
        """State the properties. True when their value is markup."""
        properties = names.listed(got.get("property"))
        if not properties:
            return False
        value, is_markup = self._value(element, got, names, spoken)
        for name in properties:
            self._state(spoken.subject, name, value)
        return is_markup

    def _value(self, element: Element, got: Mapping[str, str], names: Names, spoken: _Spoken) -> tuple[Object, bool]:
        kind = names.named(got["datatype"]) if got.get("datatype") else None
        if "content" in got:
            return literal(got["content"], kind, names.language), False
        has_markup = names.old and "datatype" not in got and any(isinstance(node, Element) for node in element.children)
        if has_markup or kind in MARKUP_TYPES:
            markup = xml_inside(element, names.namespaces) if self._may_read() else ""
            return literal(markup if self._allowance.pay(len(markup)) else "", kind or MARKUP_TYPES[0], ""), True
        if "datatype" not in got and not names.old:
            if not ("rel" in got or "rev" in got):
                given = self._resource(got, names, "resource", "href", "src")
                if given is not None:
                    return {"@id": given}, False
            if spoken.typed is not None and "about" not in got and not ("rel" in got or "rev" in got):
                return {"@id": spoken.typed}, False
        return literal(self._text(element), kind, names.language), False

    def _resource(self, got: Mapping[str, str], names: Names, *attributes: str) -> str | None:
        """The first thing that the attributes name."""
        for attribute in attributes:
            if attribute in got:
                text = got[attribute]
                found = names.address(text) if attribute in ("href", "src") else names.resource(text)
                if found is not None and found.startswith("_:"):
                    return self._named_blanks.get(found) or self._named_blanks.setdefault(found, self._blank())
                if found is not None:
                    return found
        return None

    def _blank(self) -> str:
        self._blanks += 1
        return f"_:{self._blanks}"

    def _text(self, element: Element) -> str:
        text = element.text if self._may_read() else ""
        return text if self._allowance.pay(len(text)) else ""

    def _may_read(self) -> bool:
        """A text inside a text inside a text ... would be taken once for every level."""
        return self._level < DEEPEST and self._allowance.left > 0

    def _relate(self, subject: str, relation: str, other: str, swapped: bool) -> None:
        if swapped:
            subject, other = other, subject
        self._state(subject, relation, {"@id": other})

    def _state(self, subject: str, relation: str, value: Object) -> None:
        self._count += 1
        self._things.setdefault(subject, {}).setdefault(relation, {}).setdefault(tuple(value.items()), value)

    def _expanded(self) -> list[dict[str, Any]]:
        """The statements as expanded JSON-LD; things without a name are numbered in the order of their mention."""
        numbers: dict[str, str] = {}

        def known_as(name: str) -> str:
            return numbers.setdefault(name, f"_:{len(numbers) + 1:06d}") if name.startswith("_:") else name

        things: list[dict[str, Any]] = []
        for subject, relations in self._things.items():
            thing: dict[str, Any] = {"@id": known_as(subject)}
            for relation, values in relations.items():
                if relation == TYPE:
                    thing["@type"] = [known_as(value["@id"]) for value in values.values()]
                else:
                    thing[relation] = [
                        {"@id": known_as(value["@id"])} if "@id" in value else value for value in values.values()
                    ]
            things.append(thing)
        return things
