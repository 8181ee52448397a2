"""Forms as browsers submit them, by the rules of the HTML standard. form_reader.py reads them from a page.

A `Form` is a value; `submission` is what a browser would send once a visitor has filled it in. Pure: nothing is sent
here. Not implemented: checks before sending (`required`, `pattern`), `wrap=hard`, and scripts.

How it fails: ParseFailed for an unknown field or a value that the field cannot have; the message lists the valid ones.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from turbohtml import Element

from ..errors import InvalidUrl, ParseFailed
from ..extract.links import LinkBase
from ..model.payload import Body, Part
from ..model.task import Request
from ..model.url import origin_of, site_of
from .form_data import MULTIPART, NO_FILE, PLAIN, URLENCODED, Entry, Upload, multipart, plain, urlencoded

File: TypeAlias = bytes | tuple[str, bytes] | tuple[str, bytes, str]  # with its name, or name and content type
Single: TypeAlias = str | int | float | bool | File
Value: TypeAlias = Single | list[Any] | None
Press: TypeAlias = str | tuple[str, str] | bool | None  # a button: its name, id or label; or (name, value)

_METHODS = ("get", "post", "dialog")
_ENCTYPES = (URLENCODED, MULTIPART, PLAIN)
_TELL_DIRECTION = frozenset(("email", "hidden", "password", "search", "submit", "tel", "text", "textarea", "url"))
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_MOST_LISTED = 30


class Option(msgspec.Struct, frozen=True):
    """An option of a select."""

    value: str
    label: str
    selected: bool = False
    disabled: bool = False


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """A field or a button of a form. `kind` is the type of an input, or select, or textarea."""

    kind: str
    name: str
    value: str = ""
    id: str = ""
    checked: bool = False
    disabled: bool = False
    multiple: bool = False
    options: tuple[Option, ...] = ()
    dirname: str = ""
    direction: str = "ltr"  # "auto": from the first letter of the value
    bounds: tuple[tuple[str, str], ...] = ()  # min, max and step of an input
    label: str = ""  # of a button
    overrides: tuple[tuple[str, str], ...] = ()  # formaction, formmethod, formenctype of a button

    @property
    def submits(self) -> bool:
        """Is this a submit button?"""
        return self.kind in ("submit", "image")

    @property
    def is_field(self) -> bool:
        """Can it take a value?"""
        return bool(self.name) and self.kind not in ("submit", "image", "button", "reset")


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser sends. A GET has no body and no content type."""

    method: str
    url: str
    parts: tuple[Part, ...] = ()  # the body: bytes, and references to secrets
    content_type: str = ""

    @property
    def body(self) -> bytes:
        """The body with its secrets masked."""
        return b"".join(part for part in self.parts if isinstance(part, bytes))


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A form of a page. `controls` are in document order, including those outside that belong to it by their `form`
    attribute."""

    page_url: str
    id: str = ""
    name: str = ""
    action: str = ""  # as it is written
    method: str = ""
    enctype: str = ""
    encoding: str = "UTF-8"  # used for sending
    controls: tuple[Control, ...] = ()
    base: str = ""  # the base URL of its action
    page_encoding: str = "UTF-8"

    @property
    def fields(self) -> dict[str, list[str]]:
        """The fields by name, each with the value that is sent if it is left unchanged."""
        found: dict[str, list[str]] = {one.name: [] for one in self.controls if one.is_field}
        for name, value in self._entries({}, None):
            found.setdefault(name, []).append(value.name if isinstance(value, Upload) else value)
        return found

    @property
    def buttons(self) -> tuple[Control, ...]:
        """The submit buttons."""
        return tuple(one for one in self.controls if one.submits)

    def submission(
        self,
        values: Mapping[str, Value] | None = None,
        *,
        press: Press = None,
        add: Mapping[str, Value] | None = None,
    ) -> Submission:
        """What a browser sends with these values in the fields when a button is pressed. Raises ParseFailed.

        `values` maps field names to a text or a number; True or False for a checkbox; the value of a radio button, the
        value or label of an option, or a list of these if several are allowed; a file as in Request.files; None to omit
        the field. `press` is a button: its name, id or label, or (name, value). None presses the first one, as the
        Enter key does; False presses none. `add` holds entries for which the form has no field.
        """
        button = self._pressed(press)
        entries = [*self._entries(values or {}, button), *_added(add or {})]
        overrides = dict(button.overrides) if button is not None else {}
        method = _keyword(overrides.get("formmethod", self.method), _METHODS)
        enctype = _keyword(overrides.get("formenctype", self.enctype), _ENCTYPES)
        url = self._target(overrides.get("formaction", self.action))
        if method == "dialog":
            raise ParseFailed(f"{self} closes a dialog and sends nothing. Press another button, or take another form.")
        if method == "get":
            query = urlencoded(entries, self.encoding)
            if not all(isinstance(part, bytes) for part in query):
                raise ParseFailed(
                    f"{self} is sent by GET: a secret in it would be part of the address, which is logged."
                )
            text = b"".join(part for part in query if isinstance(part, bytes)).decode()
            return Submission(method="GET", url=f"{url.partition('?')[0]}?{text}")
        if enctype == MULTIPART:
            parts, content_type = multipart(entries, self.encoding)
        elif enctype == PLAIN:
            parts, content_type = plain(entries, self.encoding), PLAIN
        else:
            parts, content_type = urlencoded(entries, self.encoding), URLENCODED
        if not all(isinstance(part, bytes) for part in parts):
            self._check_secrets_may_go(url)
        return Submission(method="POST", url=url, parts=tuple(parts), content_type=content_type)

    def request(
        self,
        values: Mapping[str, Value] | None = None,
        *,
        press: Press = None,
        add: Mapping[str, Value] | None = None,
        **fields: Any,  # of Request
    ) -> Request:
        """A request that submits the form: `submission` with a browser's Origin and Referer headers."""
        sent = self.submission(values, press=press, add=add)
        if sent.method == "GET":
            return Request(url=sent.url, **fields)
        origin = origin_of(self.page_url)
        headers = {
            "Content-Type": sent.content_type,
            "Origin": origin,
            "Referer": self.page_url.partition("#")[0] if origin_of(sent.url) == origin else f"{origin}/",
            **(fields.pop("headers", None) or {}),
        }
        return Request(url=sent.url, method="POST", headers=headers, body=Body(parts=sent.parts), **fields)

    def _target(self, action: str) -> str:
        # A form without an action goes to its own page, regardless of <base>.
        try:
            url = LinkBase(self.base or self.page_url, self.page_encoding).join(action) if action else self.page_url
        except InvalidUrl as error:
            raise ParseFailed(f"{self} cannot be submitted: {error}") from error
        return url.partition("#")[0]

    def _check_secrets_may_go(self, url: str) -> None:
        """A page chooses the target of its form, but must not make us send a secret to another site or in plain text.
        Raises ParseFailed."""
        plainly = self.page_url.startswith("https:") and not url.startswith("https:")
        if plainly or site_of(url) != site_of(self.page_url):
            raise ParseFailed(
                f"{self} would send a secret to {origin_of(url)}, which {origin_of(self.page_url)} is not. If that is "
                "meant, name the address yourself: page.follow(url, method='POST', form={...})."
            )

    def _pressed(self, press: Press) -> Control | None:
        buttons = self.buttons
        if press is None or press is True:
            return buttons[0] if buttons and not buttons[0].disabled else None
        if press is False:
            return None
        if isinstance(press, tuple):
            found = [one for one in buttons if (one.name, one.value) == press]
        else:
            by_key = ([one for one in buttons if getattr(one, key) == press] for key in ("name", "id", "label"))
            found = next(filter(None, by_key), [])
        usable = [one for one in found if not one.disabled]
        if len(usable) == 1:
            return usable[0]
        trouble = (
            "is disabled in" if found and not usable else "means several buttons of" if found else "is no button of"
        )
        words = (f"{one.label!r} (name {one.name!r}, value {one.value!r})" for one in buttons)
        raise ParseFailed(
            f"{press!r} {trouble} {self}. It has {_words(words, 'no button')}. Name one by its name, id or label, or"
            " as (name, value)."
        )

    # -- the entries, in the order of the document ----------------------------------------------------------------

    def _entries(self, values: Mapping[str, Value], button: Control | None) -> Iterator[Entry]:
        given = self._given(values)
        for place, control in enumerate(self.controls):
            if control.disabled or (control.submits and control is not button):
                continue
            if place not in given:
                yield from self._untouched(control)
            elif given[place] is not None:
                yield from self._filled_in(control, given[place])

    def _given(self, values: Mapping[str, Value]) -> dict[int, Value]:
        """The values for the controls, by index."""
        places: dict[str, list[int]] = {}
        for place, one in enumerate(self.controls):
            if one.is_field:
                places.setdefault(one.name, []).append(place)
        given: dict[int, Value] = {}
        for name, value in values.items():
            if name not in places:
                raise ParseFailed(self._no_field(name, places))
            enabled = [place for place in places[name] if not self.controls[place].disabled]
            if not enabled and value is not None:
                raise ParseFailed(
                    f"{name!r} of {self} is disabled, so a browser does not send it. To send it all the same, pass"
                    f" add={{{name!r}: ...}}."
                )
            given.update(zip(enabled, self._shares([self.controls[place] for place in enabled], value), strict=False))
        return given

    def _no_field(self, name: str, names: Iterable[str]) -> str:
        known = sorted(names)
        return (
            f"{self} has no field {name!r}.{_suggestion(name, known)} It has {_words(known, 'no field')}. To send it"
            f" all the same, pass add={{{name!r}: ...}}."
        )

    def _shares(self, group: Sequence[Control], value: Value) -> Sequence[Value]:
        """Distribute a value over the controls of one name. Controls left without a value stay unchanged."""
        if value is None:
            return [None] * len(group)
        if all(one.kind in ("checkbox", "radio") for one in group):
            return self._checks(group, value)
        if len(group) == 1:
            return [value]
        several = _as_list(value)
        if len(several) > len(group):
            name = group[0].name
            raise ParseFailed(f"{self} has {len(group)} fields {name!r}, and {len(several)} values were given.")
        return several

    def _checks(self, boxes: Sequence[Control], value: Value) -> list[Value]:
        """For each box of one name, whether it is checked."""
        name, known = boxes[0].name, [one.value for one in boxes]
        if isinstance(value, bool):
            if len(boxes) > 1:
                raise ParseFailed(
                    f"{self} has {len(boxes)} boxes {name!r}. Give the values of those to be checked:"
                    f" {_words(map(repr, known))}."
                )
            return [value]
        left = [str(one) for one in _as_list(value)]
        if len(left) > 1 and all(one.kind == "radio" for one in boxes):
            raise ParseFailed(f"Only one of the radio buttons {name!r} of {self} can be chosen, and {left} were given.")
        checked: list[Value] = []
        for box in boxes:
            checked.append(box.value in left)
            if box.value in left:
                left.remove(box.value)
        if left:
            raise ParseFailed(self._no_choice(name, left[0], known))
        return checked

    def _untouched(self, control: Control) -> Iterator[Entry]:
        """The entries of an unchanged control, or of the pressed button."""
        name, kind = control.name, control.kind
        if kind == "image":
            prefix = f"{name}." if name else ""
            yield from ((f"{prefix}x", "0"), (f"{prefix}y", "0"))
        elif not name or kind in ("button", "reset"):
            return
        elif kind == "select":
            yield from ((name, one.value) for one in control.options if one.selected and not one.disabled)
        elif kind in ("checkbox", "radio"):
            if control.checked:
                yield name, control.value
        elif kind == "file":
            yield name, NO_FILE
        elif kind == "hidden" and name.lower() == "_charset_":
            yield name, self.encoding
        else:
            yield from _with_direction(control, control.value)

    def _filled_in(self, control: Control, value: Value) -> Iterator[Entry]:
        name, kind = control.name, control.kind
        if kind == "select":
            yield from ((name, one) for one in self._chosen(control, value))
        elif kind in ("checkbox", "radio"):
            if value is True:
                yield name, control.value
        elif kind == "file":
            yield from ((name, one) for one in self._uploads(control, value))
        else:
            yield from _with_direction(control, self._text(control, value))

    def _chosen(self, control: Control, value: Value) -> list[str]:
        options, chosen = control.options, set[int]()
        wanted = [str(one) for one in _as_list(value)]
        if len(wanted) > 1 and not control.multiple:
            raise ParseFailed(f"One option of {control.name!r} of {self} can be chosen, and {wanted} were given.")
        for one in wanted:
            free = [at for at, option in enumerate(options) if not option.disabled and at not in chosen]
            hits = [at for at in free if options[at].value == one] or [at for at in free if options[at].label == one]
            if not hits:
                known = [option.value for option in options if not option.disabled]
                raise ParseFailed(self._no_choice(control.name, one, known))
            chosen.add(hits[0])
        return [options[at].value for at in sorted(chosen)]

    def _no_choice(self, name: str, value: str, known: Sequence[str]) -> str:
        return (
            f"{name!r} of {self} has no {value!r}.{_suggestion(value, known)} It has"
            f" {_words(map(repr, known), 'nothing to choose from')}. To send it all the same, pass"
            f" values={{{name!r}: None}} and add={{{name!r}: {value!r}}}."
        )

    def _uploads(self, control: Control, value: Value) -> list[Upload]:
        files = []
        for one in _as_list(value):
            file = _upload(control.name, one)
            if file is None:
                raise ParseFailed(
                    f"{control.name!r} of {self} is a file: give bytes, or (file name, bytes, content type), not"
                    f" {type(one).__name__}."
                )
            files.append(file)
        if len(files) > 1 and not control.multiple:
            raise ParseFailed(f"{control.name!r} of {self} takes one file, and {len(files)} were given.")
        return files or [NO_FILE]

    def _text(self, control: Control, value: Value) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            kind = type(value).__name__
            raise ParseFailed(f"{control.name!r} of {self} takes a text or a number, not a {kind}. None leaves it out.")
        text = str(value)
        kept = sanitized(control.kind, text, control.bounds)
        if text.strip() and not kept:
            raise ParseFailed(f"{text[:80]!r} is no {control.kind}, and {control.name!r} of {self} must be one.")
        return kept

    def __str__(self) -> str:
        return f"{self._tag} of {self.page_url}"

    @property
    def _tag(self) -> str:
        return f"form#{self.id}" if self.id else f"form[name={self.name}]" if self.name else "form"

    def brief(self) -> str:
        """One line for a list: `form#login (POST /login: user, password)`."""
        names = dict.fromkeys(one.name for one in self.controls if one.is_field)
        method = _keyword(self.method, _METHODS).upper()
        return f"{self._tag} ({method} {self.action[:60] or 'to its own page'}: {_words(names, 'no fields')})"


def sanitized(kind: str, text: str, bounds: Sequence[tuple[str, str]] = ()) -> str:
    """The value of an input of this type after a visitor enters that text."""
    if kind == "hidden":
        return text
    if kind == "textarea":
        return text.replace("\r\n", "\n").replace("\r", "\n")
    if kind == "color":
        return text.lower() if _COLOUR.fullmatch(text.lower()) else "#000000"
    form = Element("form")
    form.append(Element("input", {**dict(bounds), "type": kind, "name": "it", "value": text}))
    entries = form.form_data()
    return entries[0][1] if entries else text


def _with_direction(control: Control, text: str) -> Iterator[Entry]:
    yield control.name, text
    if control.dirname and control.kind in _TELL_DIRECTION:
        yield control.dirname, first_direction(text) or "ltr" if control.direction == "auto" else control.direction


def first_direction(text: str) -> str | None:
    """The direction of the first letter that has one: ltr, rtl or None."""
    for char in text:
        strong = unicodedata.bidirectional(char)
        if strong in ("L", "R", "AL"):
            return "ltr" if strong == "L" else "rtl"
    return None


def _added(entries: Mapping[str, Value]) -> Iterator[Entry]:
    for name, value in entries.items():
        for one in _as_list(value):
            yield name, _upload(name, one) or str(one)


def _upload(name: str, value: Any) -> Upload | None:
    match value:
        case bytes():
            return Upload(name, value)
        case (str() as filename, bytes() as content):
            return Upload(filename, content)
        case (str() as filename, bytes() as content, str() as kind):
            return Upload(filename, content, kind)
    return None


def _as_list(value: Value) -> list[Any]:
    """A tuple is one value: a file with its name."""
    return [] if value is None else value if isinstance(value, list) else [value]


def _keyword(text: str, known: Sequence[str]) -> str:
    return text.lower() if text.lower() in known else known[0]


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name)[:200], [one[:200] for one in list(known)[:1000]], n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _words(words: Iterable[str], nothing: str = "nothing") -> str:
    shown = [one[:80] for one in words]
    more = f" and {len(shown) - _MOST_LISTED} more" if len(shown) > _MOST_LISTED else ""
    return ", ".join(shown[:_MOST_LISTED]) + more or nothing
