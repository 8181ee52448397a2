"""CSS selectors in the dialect of scrapers, compiled once: what to select, and what to extract from it.

The dialect is CSS plus `::text` (the text directly inside), `::attr(name)` and `:contains("text")`. As in Scrapy, a
selector on an element sees only that element and its descendants, never its ancestors.

There are two engines. The native one is many times faster and runs where both give the same result: on whole documents,
and inside elements for selectors without combinators. Other queries are translated to XPath.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import repeat

import msgspec
import turbohtml
from turbohtml.convert import ExpressionError, SelectorSyntaxError, css_to_xpath

from ..errors import ParseFailed

Found = turbohtml.Node | str


class BadSelector(ParseFailed, ValueError):
    """A selector that cannot be parsed; the message quotes it."""


class _Arm(msgspec.Struct, frozen=True):
    """One part of a comma list. `take` is "node", "text", "texts" (all text inside) or "@name"."""

    css: str
    take: str


_PSEUDO_ELEMENT = re.compile(r"::([-\w]+)(?:\(\s*([^()]*?)\s*\))?$")
_CONTAINS = re.compile(r""":contains\(\s*(?:"([^"]*)"|'([^']*)'|([-\w]+))\s*\)""")
_UNIVERSAL_INSIDE = re.compile(r"(?<![>+~,\s])\s+\*?$")
_CSS_SPACE = " \t\r\n\f"


@lru_cache(maxsize=4096)
def compile_css(selector: str) -> CssQuery:
    """Compile a selector; results are cached. Raises BadSelector."""
    if not isinstance(selector, str):
        raise BadSelector(f"A CSS selector is a str, not {type(selector).__name__}: {selector!r:.100}")
    return CssQuery(selector)


class CssQuery:
    """A compiled selector. Immutable; shared by all pages."""

    def __init__(self, selector: str) -> None:
        self.selector = selector
        arms = [_read_arm(part, selector) for part in _split(selector)]
        self._take = arms[0].take if len({arm.take for arm in arms}) == 1 else None
        self._native: str | None = ", ".join(arm.css for arm in arms)
        if self._take is None or ":contains(" in self._native or ":scope" in self._native:
            self._native = None  # only XPath can express it
        self._inside = self._native is not None and not any(_has_combinator(arm.css) for arm in arms)
        self._path = _translate(arms, selector)
        if self._native is not None:
            try:
                turbohtml.Element("a").select(self._native)
            except SelectorSyntaxError as error:
                raise _bad(selector, error) from error

    def of_document(self, document: turbohtml.Document) -> list[Found]:
        """All matches in a document, in document order."""
        if self._native is None:
            return _nodes(self._path, document)
        if self._take == "texts" and self._native == "*":
            return list(document.strings)
        return self._taken(document.select(self._native), document)

    def attributes_of_document(self, document: turbohtml.Document, name: str) -> list[str]:
        """The attribute of every matching element that has it, in document order; texts as they are."""
        if self._native is not None and self._take == "node":
            texts = map(turbohtml.Element.attr, document.select(self._native), repeat(name))
            return [text for text in texts if text is not None]
        found = self.of_document(document)
        taken = (one.attr(name) if isinstance(one, turbohtml.Element) else one for one in found)
        return [text for text in taken if isinstance(text, str)]

    def first_of_document(self, document: turbohtml.Document) -> Found | None:
        """The first match in a document, if it can be found without searching for the others; else None."""
        native, take = self._native, self._take
        element = document.select_one(native) if native is not None else None
        if element is None or take is None:
            return None
        if take == "node":
            return element
        if take == "texts":
            return next(iter(element.strings), None)
        if take[0] == "@":
            return element.attr(take[1:])
        # An element's leading text comes before the text of any match inside it.
        begins = next(iter(element.children), None)
        return begins.data if isinstance(begins, turbohtml.Text) else None

    def of_element(self, element: turbohtml.Element) -> list[Found]:
        """All matches in an element, itself included, in document order."""
        if self._take == "texts" and self._native == "*":
            return list(element.strings)
        if self._native is not None and (self._inside or self._path is None):
            found = element.select(self._native)
            if element.matches(self._native):
                found.insert(0, element)
            return self._taken(found, element)
        return _nodes(self._path, element)

    def _taken(self, found: list[turbohtml.Element], root: turbohtml.Node) -> list[Found]:
        take = self._take
        if take == "node":
            return list(found)
        if take is not None and take[0] == "@":
            name = take[1:]
            return [value for element in found if (value := element.attr(name)) is not None]
        # Text of nested matches interleaves; XPath sorts it into document order.
        if len(found) > 1 and self._path is not None and self._nest(found):
            return _nodes(self._path, root)
        if take == "texts":
            return [text for element in found for text in element.strings]
        return [child.data for element in found for child in element.children if isinstance(child, turbohtml.Text)]

    def _nest(self, found: list[turbohtml.Element]) -> bool:
        native = self._native
        return native is not None and any(element.select_one(native) is not None for element in found)


def _nodes(path: turbohtml.XPath | None, context: turbohtml.Node) -> list[Found]:
    if path is None:
        return []
    result = path(context)
    return result if isinstance(result, list) else []


def _bad(selector: str, error: Exception) -> BadSelector:
    return BadSelector(f"The CSS selector {selector[:200]!r} cannot be read: {error}")


def _split(selector: str) -> Iterator[str]:
    """Split at top-level commas."""
    start = 0
    for position, char in _top_level(selector):
        if char == ",":
            yield selector[start:position]
            start = position + 1
    yield selector[start:]


def _top_level(selector: str) -> Iterator[tuple[int, str]]:
    """Characters outside quotes, brackets and parentheses, without escapes."""
    depth, quote, skip = 0, "", False
    for position, char in enumerate(selector):
        if skip:
            skip = False
        elif char == "\\":
            skip = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif depth == 0:
            yield position, char


def _has_combinator(css: str) -> bool:
    return any(char in ">+~" or char in _CSS_SPACE for _, char in _top_level(css))


def _read_arm(part: str, selector: str) -> _Arm:
    css = part.strip(_CSS_SPACE)
    marks = [at for at, char in _top_level(css) if char == ":" and css[at : at + 2] == "::"]
    if not marks:
        return _Arm(css, "node")
    match = _PSEUDO_ELEMENT.search(css)
    if match is None or match.start() != marks[0]:
        raise BadSelector(f"The CSS selector {selector[:200]!r} cannot be read: ::text and ::attr(x) come last.")
    name, argument = match[1].lower(), match[2]
    head = css[: match.start()]
    css = f"{head}*" if not head or head[-1] in _CSS_SPACE or head[-1] in ">+~" else head
    if name == "attr" and argument:
        return _Arm(css, "@" + argument.strip("\"'").lower())
    if name == "text" and argument is None:
        # `p ::text` is all text inside p, its own included; `::text` alone is all text.
        if css == "*":
            return _Arm("*", "texts")
        inside = _UNIVERSAL_INSIDE.search(css)
        return _Arm(css[: inside.start()], "texts") if inside and css.endswith("*") else _Arm(css, "text")
    raise BadSelector(
        f"The CSS selector {selector[:200]!r} has an unknown ::{match[1]}; there are ::text and ::attr(x)."
    )


def _translate(arms: list[_Arm], selector: str) -> turbohtml.XPath | None:
    """The arms as one XPath, or None if XPath cannot express them."""
    paths = []
    for arm in arms:
        texts: list[str] = []

        def hold(match: re.Match[str], texts: list[str] = texts) -> str:
            texts.append(next(group for group in match.groups() if group is not None))
            return f"[gossamer-contains-{len(texts) - 1}]"

        try:
            path = css_to_xpath(_CONTAINS.sub(hold, arm.css))
        except SelectorSyntaxError as error:
            raise _bad(selector, error) from error
        except ExpressionError:
            return None
        for index, text in enumerate(texts):
            path = path.replace(f"@gossamer-contains-{index}", f"contains(., {_literal(text)})")
        if arm.take == "texts":
            path = "descendant::text()" if arm.css == "*" else f"{path}/descendant::text()"
        elif arm.take != "node":
            path = f"{path}/{'text()' if arm.take == 'text' else arm.take}"
        paths.append(path)
    return turbohtml.XPath(" | ".join(paths))


def _literal(text: str) -> str:
    return f"'{text}'" if "'" not in text else f'"{text}"'
