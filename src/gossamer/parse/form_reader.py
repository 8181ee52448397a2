"""Reads the forms of a page from its source: their fields, the values, and which form owns each field.

A field belongs to the form that its `form` attribute names; else to the form that was open when the parser reached it.
That form is not always an ancestor: tables and badly nested tags separate them in the tree, but browsers keep the link.
So the source is parsed again here, with the positions of its tags.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

import turbohtml
from msgspec.structs import replace
from turbohtml import Document, Element, TokenType

from ..errors import ParseFailed
from ..extract.links import LinkBase, base_of
from .css import compile_css
from .form_data import form_encoding
from .forms import Control, Form, Option, first_direction, sanitized
from .selectors import Selector

if TYPE_CHECKING:
    from .page import Page

MOST_CONTROLS = 20_000  # of all forms of a page
_MOST_LISTED = 10  # forms in a message
_INPUT_TYPES = frozenset((
    "button", "checkbox", "color", "date", "datetime-local", "email", "file", "hidden", "image", "month", "number",
    "password", "radio", "range", "reset", "search", "submit", "tel", "text", "time", "url", "week",
))  # fmt: skip
_SPACES = re.compile(r"[ \t\r\n\f]+")


def forms_of(page: Page) -> PageForms:
    """The forms of a page. Raises ParseFailed for a page with far too many fields."""
    tree = page.tree
    encoding = tree.encoding if tree is not None else None
    return PageForms(page.text, page.url, base_of(tree, page.url), encoding or "UTF-8")


def form_of(page: Page, which: str | Selector | None) -> Form:
    """The form that `which` selects; see `Page.form`. Raises ParseFailed."""
    forms = forms_of(page)
    if which is None:
        return forms.only()
    if isinstance(which, str):
        return forms.matching(which)
    if not isinstance(which, Selector):
        raise ParseFailed(f"Select a form by a CSS selector or a Selector, not a {type(which).__name__}.")
    around = which.root.closest("form") if isinstance(which.root, Element) else None
    known = [form for form in page.tree.select("form") if form.closest("template") is None] if page.tree else []
    return forms.at(known.index(around) if around in known else -1)


class PageForms:
    """The forms of one page, each read on demand."""

    def __init__(self, source: str, url: str, base: LinkBase, encoding: str) -> None:
        self._url = url
        self._base = base.href
        self._encoding = encoding
        self._tree = turbohtml.parse(source)
        self._forms = [form for form in self._tree.select("form") if form.closest("template") is None]
        controls = self._tree.select("button, input, select, textarea")
        if len(controls) > MOST_CONTROLS:
            raise ParseFailed(f"{url} has more than {MOST_CONTROLS:,} fields: it is not read as a page with forms.")
        self._owned: list[list[Element]] = [[] for _ in self._forms]
        self._place_of = {form: place for place, form in enumerate(self._forms)}  # also of controls
        if self._forms:
            owners = _Owners(source, self._tree, self._forms)
            for control in controls:
                owner = owners.of(control)
                if owner is not None:
                    self._owned[owner].append(control)
                    self._place_of[control] = owner

    def __len__(self) -> int:
        return len(self._forms)

    def all(self) -> list[Form]:
        return [self._read(place) for place in range(len(self._forms))]

    def at(self, place: int) -> Form:
        """The form with this index in the page."""
        if not 0 <= place < len(self._forms):
            raise ParseFailed(f"{self._url} has no such form. {self._what_there_is()}")
        return self._read(place)

    def matching(self, selector: str) -> Form:
        """The first form that the selector matches, or that owns a matching field. Raises ParseFailed."""
        for found in compile_css(selector).of_document(self._tree):
            if isinstance(found, Element):
                around = found if found in self._place_of else found.closest("form")
                if around is not None and around in self._place_of:
                    return self._read(self._place_of[around])
        raise ParseFailed(f"{self._url} has no form {selector!r}. {self._what_there_is()}")

    def only(self) -> Form:
        """The only form of the page. Raises ParseFailed."""
        if len(self._forms) == 1:
            return self._read(0)
        raise ParseFailed(f"{self._url} does not have exactly one form. {self._what_there_is()}")

    def _what_there_is(self) -> str:
        if not self._forms:
            return "It has no form at all. Is it the page that you expected, or does a script create the form?"
        listed = "; ".join(self._read(place).brief() for place in range(min(len(self._forms), _MOST_LISTED)))
        more = f"; and {len(self._forms) - _MOST_LISTED} more" if len(self._forms) > _MOST_LISTED else ""
        return f"It has {listed}{more}. Name one by a CSS selector."

    def _read(self, place: int) -> Form:
        form = self._forms[place]
        return Form(
            page_url=self._url,
            id=form.attr("id") or "",
            name=form.attr("name") or "",
            action=(form.attr("action") or "").strip(" \t\r\n\f"),
            method=form.attr("method") or "",
            enctype=form.attr("enctype") or "",
            encoding=form_encoding(form.attr("accept-charset"), self._encoding),
            controls=tuple(_controls(self._owned[place])),
            base=self._base,
            page_encoding=self._encoding,
        )


class _Owners:
    """Finds the form that owns a control, as an index in the list of forms."""

    def __init__(self, source: str, tree: Document, forms: list[Element]) -> None:
        self._tree = tree
        self._places = {form: place for place, form in enumerate(forms)}
        self._by_id: dict[str, int | None] = {}
        ends = [
            (token.line, token.col)
            for token in turbohtml.tokenize(source, capture_attributes=False)
            if token.type is TokenType.END_TAG and token.tag == "form"
        ]
        # A form is open from its start tag to the next form end tag, wherever that is in the tree.
        self._starts = [_position(form) for form in forms]
        self._order = sorted(range(len(forms)), key=self._starts.__getitem__)
        self._sorted = [self._starts[place] for place in self._order]
        self._ends = [
            ends[after] if (after := bisect_right(ends, self._starts[place])) < len(ends) else (1 << 60, 0)
            for place in self._order
        ]

    def of(self, control: Element) -> int | None:
        name = control.attr("form")
        if control.closest("template") is not None:
            return None
        if name is not None:
            return self._named(name)
        position = _position(control)
        before = bisect_right(self._sorted, position) - 1
        if before >= 0 and position < self._ends[before]:
            return self._order[before]
        around = control.closest("form")
        return self._places.get(around) if around is not None else None

    def _named(self, name: str) -> int | None:
        """The form with this id. If another element has the id first, no form owns the control."""
        if name not in self._by_id:
            escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\a ").replace("\0", "")
            first = self._tree.select_one(f'[id="{escaped}"]') if name else None
            self._by_id[name] = self._places.get(first) if first is not None else None
        return self._by_id[name]


def _position(element: Element) -> tuple[int, int]:
    return element.source_line or 0, element.source_col or 0


def _controls(elements: list[Element]) -> Iterator[Control]:
    # Among radio buttons of one name, only the last checked one stays checked.
    checked = {
        element.attr("name"): element
        for element in elements
        if _kind(element) == "radio" and element.attr("checked") is not None and element.attr("name")
    }
    for element in elements:
        one = _control(element)
        if one.kind == "radio" and one.checked and checked.get(element.attr("name"), element) != element:
            one = replace(one, checked=False)
        yield one


def _control(element: Element) -> Control:
    kind = _kind(element)
    name = element.attr("name") or ""
    value = element.attr("value")
    common = Control(kind=kind, name=name, id=element.attr("id") or "", disabled=_is_disabled(element))
    if kind == "select":
        multiple = element.attr("multiple") is not None
        return replace(common, multiple=multiple, options=tuple(_options(element, multiple)))
    if kind in ("checkbox", "radio"):
        return replace(common, value="on" if value is None else value, checked=element.attr("checked") is not None)
    if kind in ("submit", "image"):
        return replace(
            common,
            value=value or ("Submit" if value is None and element.tag == "input" and kind == "submit" else ""),
            label=_label(element, value),
            overrides=tuple(
                (key, given.strip(" \t\r\n\f"))
                for key in ("formaction", "formmethod", "formenctype")
                if (given := element.attr(key)) is not None
            ),
            dirname=element.attr("dirname") or "",
            direction=_direction(element, kind),
        )
    bounds = tuple((key, given) for key in ("min", "max", "step") if (given := element.attr(key)) is not None)
    return replace(
        common,
        value=sanitized(kind, element.text if kind == "textarea" else value or "", bounds),
        multiple=element.attr("multiple") is not None,
        dirname=element.attr("dirname") or "",
        direction=_direction(element, kind),
        bounds=bounds,
    )


def _kind(element: Element) -> str:
    tag = element.tag
    if tag in ("select", "textarea"):
        return tag
    given = (element.attr("type") or "").lower()
    if tag == "button":
        return given if given in ("button", "reset") else "submit"
    return given if given in _INPUT_TYPES else "text"


def _label(element: Element, value: str | None) -> str:
    text = element.text if element.tag == "button" else element.attr("alt") if _kind(element) == "image" else value
    return _SPACES.sub(" ", text or "").strip()


def _is_disabled(element: Element) -> bool:
    """A disabled fieldset disables all its controls, except those in its first legend."""
    if element.attr("disabled") is not None:
        return True
    below: Element = element
    for above in element.ancestors:
        if not isinstance(above, Element):
            break
        if above.tag == "fieldset" and above.attr("disabled") is not None:
            legend = next((one for one in above.children if isinstance(one, Element) and one.tag == "legend"), None)
            if legend is None or below != legend:
                return True
        below = above
    return False


def _options(select: Element, multiple: bool) -> list[Option]:
    options = []
    for element in select.select("option"):
        text = _SPACES.sub(" ", element.text).strip(" ")
        value = element.attr("value")
        group = element.parent
        options.append(
            Option(
                value=text if value is None else value,
                label=element.attr("label") or text,
                selected=element.attr("selected") is not None,
                disabled=element.attr("disabled") is not None
                or (isinstance(group, Element) and group.tag == "optgroup" and group.attr("disabled") is not None),
            )
        )
    if multiple:
        return options
    # The last selected option wins; if none is selected, a drop-down list shows its first enabled one.
    picked = [at for at, one in enumerate(options) if one.selected][-1:]
    if not picked and _display_size(select) == 1:
        picked = [at for at, one in enumerate(options) if not one.disabled][:1]
    return [Option(one.value, one.label, at in picked, one.disabled) for at, one in enumerate(options)]


def _display_size(select: Element) -> int:
    size = re.match(r"[ \t\r\n\f]*\+?(\d{1,9})", select.attr("size") or "")
    return int(size[1]) or 1 if size else 1


def _direction(element: Element, kind: str) -> str:
    """The direction of a control: its own `dir`, or that of an ancestor."""
    own = (element.attr("dir") or "").lower()
    if own in ("ltr", "rtl", "auto"):
        return own
    if kind == "tel":
        return "ltr"
    for above in element.ancestors:
        given = (above.attr("dir") or "").lower() if isinstance(above, Element) else ""
        if given in ("ltr", "rtl"):
            return given
        if given == "auto" and isinstance(above, Element):
            return first_direction(above.text) or "ltr"
    return "ltr"
