"""`Selector` and `SelectorList`: CSS and XPath in Scrapy's dialect.

A selector holds an element, or a text from `::text`, `::attr(x)` or an XPath. Selecting from text finds nothing. XPath
numbers become "3.0", booleans "1" or "0".
"""

from __future__ import annotations

import re
from collections import UserList
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from re import Pattern
from types import SimpleNamespace
from typing import Any, TypeAlias

import turbohtml
from turbohtml import Document, Element, Node, XPath

from .css import BadSelector, CssQuery, Found, compile_css

XPathVariable: TypeAlias = str | float | bool | Element

# str or None, declared so that type checkers accept it for a `str` field: validation of the item checks whether a field
# may be None, for all fields at once.
MaybeText: TypeAlias = str | Any


class Selector:
    """One match. `root` is the node, or the str for text and attributes."""

    __slots__ = ("root",)

    def __init__(self, root: Found) -> None:
        self.root = root

    @classmethod
    def of(cls, html: str) -> Selector:
        """A selector for a piece of HTML."""
        return cls(turbohtml.parse(html))

    def css(self, selector: str) -> SelectorList:
        """Select by CSS with `::text`, `::attr(x)` and `:contains("x")`. Raises BadSelector."""
        query = compile_css(selector)
        root = self.root
        if isinstance(root, Document):
            return SelectorList.of_query(query, root)
        return SelectorList(map(Selector, query.of_element(root)) if isinstance(root, Element) else ())

    def xpath(self, expression: str, **variables: XPathVariable) -> SelectorList:
        """Select by XPath 1.0 with `has-class()`, `re:test()` and $variables. Raises BadSelector."""
        path = _compile_xpath(expression)
        root = self.root
        if isinstance(root, Document):
            root = root.root or root  # as in Scrapy, a relative path starts at <html>
        if isinstance(root, str):
            return SelectorList()
        try:
            result = path(root, **variables)
        except (ValueError, TypeError) as error:
            raise _bad_xpath(expression, error) from error
        if isinstance(result, list):
            return SelectorList(Selector(found) for found in result)
        if isinstance(result, bool):
            return SelectorList([Selector("1" if result else "0")])
        return SelectorList([Selector(str(result))])

    def get(self, default: str | None = None) -> MaybeText:
        """The text, or the outer HTML of an element. (`default` is for SelectorList, where nothing may be found.)"""
        root = self.root
        return root if isinstance(root, str) else root.html

    def getall(self) -> list[str]:
        return [self.get()]

    @property
    def text(self) -> str:
        """All text inside, with single spaces, without scripts and styles."""
        root = self.root
        if isinstance(root, str):
            return " ".join(root.split())
        if root.select_one("script, style, noscript, template") is None:
            return " ".join(root.text.split())
        return " ".join("".join(_visible_text(root)).split())

    @property
    def attrib(self) -> dict[str, str]:
        """The element's attributes; empty for anything else."""
        root = self.root
        if not isinstance(root, Element):
            return {}
        return {name: root.attr(name) or "" for name in root.attrs}

    def re(self, pattern: str | Pattern[str], *, replace_entities: bool = True) -> list[str]:
        """All matches in `get()`: the group named `extract`, else all groups, else the whole match."""
        compiled = re.compile(pattern) if isinstance(pattern, str) else pattern
        text = self.get()
        if "extract" in compiled.groupindex:
            first = compiled.search(text)
            found = [first["extract"]] if first is not None and first["extract"] is not None else []
        else:
            found = [
                part if part is not None else ""
                for match in compiled.finditer(text)
                for part in (match.groups() if compiled.groups else (match[0],))
            ]
        return [_plain_entities(part) for part in found] if replace_entities else found

    def re_first(
        self, pattern: str | Pattern[str], default: str | None = None, *, replace_entities: bool = True
    ) -> MaybeText:
        found = self.re(pattern, replace_entities=replace_entities)
        return found[0] if found else default

    def __bool__(self) -> bool:
        """True if it is not empty."""
        return bool(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __repr__(self) -> str:
        return f"Selector({self.get()[:60]!r})"


class SelectorList(UserList[Selector]):
    """The matches of a query, in document order. Queries on the list run on each of its selectors.

    Lazy: the document is searched on first use, and `get` searches only for the first match.
    """

    _query: CssQuery
    _document: Document

    def __init__(self, found: Iterable[Selector] = ()) -> None:
        self._found: list[Selector] | None = list(found)

    @classmethod
    def of_query(cls, query: CssQuery, document: Document) -> SelectorList:
        """The matches of the query in the document."""
        found = cls.__new__(cls)
        found._found = None
        found._query, found._document = query, document
        return found

    @property
    def data(self) -> list[Selector]:  # where UserList looks for it
        if self._found is None:
            self._found = list(map(Selector, self._query.of_document(self._document)))
        return self._found

    @data.setter
    def data(self, found: list[Selector]) -> None:
        self._found = found

    def __copy__(self) -> SelectorList:
        return SelectorList(self.data)

    def __iter__(self) -> Iterator[Selector]:
        return iter(self.data)

    def css(self, selector: str) -> SelectorList:
        return SelectorList(found for each in self for found in each.css(selector))

    def xpath(self, expression: str, **variables: XPathVariable) -> SelectorList:
        return SelectorList(found for each in self for found in each.xpath(expression, **variables))

    def get(self, default: str | None = None) -> MaybeText:
        """The first match's text or HTML, or `default`."""
        if self._found is None and (only := self._query.first_of_document(self._document)) is not None:
            return only if isinstance(only, str) else only.html
        for first in self.data:
            return first.get()
        return default

    def getall(self) -> list[str]:
        return [each.get() for each in self]

    @property
    def text(self) -> str:
        """All text of the first match; "" without a match."""
        return self[0].text if self else ""

    @property
    def attrib(self) -> dict[str, str]:
        """The first match's attributes."""
        return self[0].attrib if self else {}

    def re(self, pattern: str | Pattern[str], *, replace_entities: bool = True) -> list[str]:
        return [found for each in self for found in each.re(pattern, replace_entities=replace_entities)]

    def re_first(
        self, pattern: str | Pattern[str], default: str | None = None, *, replace_entities: bool = True
    ) -> MaybeText:
        for each in self:
            found = each.re(pattern, replace_entities=replace_entities)
            if found:
                return found[0]
        return default

    # Names used by older Scrapy code.
    extract_first = get
    extract = getall


def _has_class(context: SimpleNamespace, *names: str) -> bool:
    node = context.context_node
    return isinstance(node, Element) and all(node.has_class(name) for name in names)


_EXTENSIONS: dict[tuple[str | None, str], Callable[..., bool]] = {(None, "has-class"): _has_class}


@lru_cache(maxsize=4096)
def _compile_xpath(expression: str) -> XPath:
    if not isinstance(expression, str):
        raise BadSelector(f"An XPath is a str, not {type(expression).__name__}: {expression!r:.100}")
    try:
        return XPath(expression, extensions=_EXTENSIONS if "has-class" in expression else None)
    except (ValueError, TypeError) as error:
        raise _bad_xpath(expression, error) from error


def _bad_xpath(expression: str, error: Exception) -> BadSelector:
    return BadSelector(f"The XPath {expression[:200]!r} cannot be evaluated: {error}")


_VISIBLE = XPath(
    "descendant::text()[not(ancestor::script or ancestor::style or ancestor::noscript or ancestor::template)]"
)


def _visible_text(root: Node) -> Iterable[str]:
    found = _VISIBLE(root)
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


_ENTITY = re.compile(r"&(?!lt;|amp;)#?\w+;")


def _plain_entities(text: str) -> str:
    """Decode entities, except &lt; and &amp;, which keep text distinct from markup."""
    return _ENTITY.sub(lambda match: turbohtml.unescape(match[0]), text) if "&" in text else text
