"""The text of a drafted recipe. Pure: from what was found to TOML that a person likes to go on with."""

from __future__ import annotations

import json

import msgspec

from .fields import DraftField


class DraftKind(msgspec.Struct, frozen=True, kw_only=True):
    """A page kind as it will be written."""

    name: str
    comment: str
    follow: tuple[tuple[str, str, int | None], ...] = ()  # selector, kind, priority
    next: str = ""
    parameter: str = ""
    auto: str = ""
    key: str = ""
    fields: tuple[DraftField, ...] = ()


def quoted(text: str) -> str:
    """A text as TOML: in single quotes where that saves escapes."""
    if ('"' in text or "\\" in text) and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def recipe_text(start: str, kinds: list[DraftKind], ref: str, message: str) -> str:
    """The whole file; `ref` is what commands call it, `message` one sentence on how far its rules were tried."""
    lines = [
        f"# A spider without code. Drafted from {_plain(start)}",
        f"# {message} Change what you like, then:",
        f"#   gossamer check {ref} URL    what each rule finds on a page",
        f"#   gossamer crawl {ref}        crawl",
        "",
        f"start = [{quoted(start)}]",
        "",
        "[scope]",
        "# limit = 100                   # pages in all, while you try things out",
        '# exclude = ["/cart", "*.pdf$"]  # paths to leave alone, written as in robots.txt',
    ]
    for kind in kinds:
        lines += ["", f"# {kind.comment}", f"[pages.{kind.name}]"]
        lines += _head(kind)
        if kind.fields:
            lines += ["", f"[pages.{kind.name}.fields]"]
            lines += [f"{field.name} = {_field(field)}" for field in kind.fields]
    return "\n".join(lines) + "\n"


def _head(kind: DraftKind) -> list[str]:
    lines = []
    if kind.follow:
        rules = []
        for selector, to, priority in kind.follow:
            weight = f", priority = {priority}" if priority is not None else ""
            rules.append(f"{{ css = {quoted(selector)}, to = {quoted(to)}{weight} }}")
        lines.append(f"follow = [{', '.join(rules)}]")
    if kind.next:
        lines.append(f"next = {quoted(kind.next)}")
    elif kind.parameter:
        lines.append(f'next = {{ parameter = {quoted(kind.parameter)}, pages = "detect" }}')
    if kind.auto:
        lines.append(f"auto = {quoted(kind.auto)}")
    if kind.key:
        lines.append(f"key = {quoted(kind.key)}")
    return lines


def _field(field: DraftField) -> str:
    rules = [f"{source} = {quoted(expression)}" for source, expression in field.rules]
    parts = [rules[0]] if len(rules) == 1 else [f"sources = [{', '.join(f'{{ {rule} }}' for rule in rules)}]"]
    if field.type != "text":
        parts.append(f"type = {quoted(field.type)}")
    if field.of:
        parts.append(f"of = {quoted(field.of)}")
    if field.currency:
        parts.append(f"currency = {quoted(field.currency)}")
    if field.transform:
        parts.append(f"transforms = [{field.transform}]")
    if field.required:
        parts.append("required = true")
    return f"{{ {', '.join(parts)} }}"


def _plain(url: str) -> str:
    return url if url.isprintable() else ascii(url)
