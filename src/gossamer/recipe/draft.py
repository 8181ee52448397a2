"""Drafts a recipe from a list page and some of the pages that it links to. The caller fetches them.

    for url in detail_links(page): ...            addresses worth fetching
    draft_recipe(page, details, "shop")

What it does: the list becomes a page kind that follows its links (stable_selectors.py finds them). What stands at the
same place of the linked pages and differs between them becomes their fields (induction/page_fields.py), with the names
of the product parser where that reads the same. An article is left to the article parser, and a product to the product
parser if fewer than three pages were fetched; any other page gets title, headline and text. A start page without a list
is drafted as such a page itself. Repeated blocks of the list (blocks.py) are the items if the linked pages have too
little in common, or were not fetched; otherwise they appear in a comment.
How it fails: nothing raises; the top of the file says which rules were not tried and whether nothing was recognised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ..parse.page import Page
from .blocks import best_blocks
from .edit import toml_key, toml_value
from .induction.candidates import SourceTable
from .induction.page_fields import PageField, page_fields
from .model import PRODUCT, FieldType, SourceKind, TypeOptions
from .reader import read_recipe
from .sources import PageView
from .spider import check_page, spider_of
from .stable_selectors import LinkGroup, best_group, next_selector, page_parameter

KEYS = ("sku", "ref", "reference", "id", "gtin", "isbn", "ean", "article", "number", "code")
_FEWEST_FIELDS = 3
_BY_PARSER = ("availability", "images")  # of a product, where no rule gives them
MOST_LOOKED_AT = 6  # pages behind a list
_SURE = 0.5  # confidence of a price that marks a product
_BY_SIGHT = ("page", "page script")  # sources of a price that lists of products have too
_NUMBERS = ("sku", "gtin", "mpn")
_LONG = 600  # minimum characters of an article
_TRIED = "Every rule found something on the pages it was tried on."
_LIST_ALONE = (
    "No page that the list links to could be fetched: the fields come from the list. Every rule found something on it."
)
_UNTRIED = "No page that the list links to could be fetched. The rules of [pages.{kind}] were not tried."
_UNRECOGNISED = (
    "Nothing was recognised for [pages.{kind}]: its rule finds nothing on the page it was tried on.\n"
    '# If scripts make the page, it needs a browser: write route = "browser" under [politeness].'
)


class RecipeDraft(msgspec.Struct, frozen=True):
    """The text of the recipe, and a short description of its page kinds."""

    text: str
    summary: str


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A page kind as TOML: its keys, and its fields by name."""

    name: str
    comment: str
    head: tuple[str, ...] = ()
    fields: dict[str, str] = {}


def detail_links(page: Page) -> list[str]:
    """Some links of the page's list, from all of it. Empty for a page without a list."""
    group = _list_of(page)
    if group is None:
        return []
    last = len(group.urls) - 1
    return list(dict.fromkeys(group.urls[at * last // (MOST_LOOKED_AT - 1)] for at in range(MOST_LOOKED_AT)))


def draft_recipe(page: Page, details: Sequence[Page], ref: str) -> RecipeDraft:
    """The recipe for a start page and, if some were fetched, pages that its list links to. `ref` is its name in
    commands."""
    group = _list_of(page)
    details = [page] if group is None else details
    kind = _found_only(_detail_kind(details), details[0]) if details else _GENERIC
    message, remark = _TRIED, ""
    if not details:
        message = _UNTRIED.format(kind=kind.name)
    elif not kind.fields and not kind.head:
        message, remark = _UNRECOGNISED.format(kind=kind.name), " (nothing was recognised)"
        kind = msgspec.structs.replace(kind, fields={"title": _GENERIC.fields["title"]})
    kinds = [_listing(page, group, kind.name), kind] if group is not None else [kind]
    entries = _entries(page)
    if entries is not None and (kind.name == _GENERIC.name or (group is None and _is_price_list(page, entries))):
        kinds, message, remark, entries = [entries], _TRIED if details else _LIST_ALONE, "", None
    text = _recipe_text(page.requested_url or page.url, kinds, ref, message)
    if entries is not None and group is not None:
        text += _instead(entries)
    return RecipeDraft(text, f"{' -> '.join(each.name for each in kinds)}{remark}")


def _list_of(page: Page) -> LinkGroup | None:
    """The page's main list; None if nothing repeats, and for a product or an article."""
    group = best_group(page)
    if group is None:
        return None
    product = _product(page)
    if product is None:
        return None if _is_article(page) else group
    if _has_number(page, product):
        return None
    price = product.found.get("price")
    # A price from visible text alone may be that of the first product in a list.
    return group if group.priced >= 0.5 and price is not None and price.source in _BY_SIGHT else None


def _has_number(page: Page, product: Any) -> bool:
    """True for a page with its own article number, such as a sku: the priced links on it are other products. The number
    of a card in a list does not count."""
    number = next((str(found) for name in _NUMBERS if (found := getattr(product, name))), "")
    blocks = best_blocks(page) if number else None
    cards = page.css(blocks.selector) if blocks is not None else []
    return bool(number) and not any(number in card.text for card in cards)


def _is_price_list(page: Page, entries: _Kind) -> bool:
    """True if the price is only in visible text and every block has one: then it belongs to one of the blocks."""
    product = _product(page)
    price = product.found.get("price") if product is not None else None
    priced = any('"money"' in rule for rule in entries.fields.values())
    return priced and price is not None and price.source in _BY_SIGHT and not _has_number(page, product)


# -- page kinds --------------------------------------------------------------------------------------------------------


def _listing(page: Page, group: LinkGroup, to: str) -> _Kind:
    head = [f"follow = [{{ css = {_quoted(group.selector)}, to = {_quoted(to)}, priority = 8 }}]"]
    head += _next_page(page)
    comment = f"A list: the sample page has {len(group.urls)} links to [pages.{to}]."
    return _Kind(name="listing", comment=comment, head=tuple(head))


def _next_page(page: Page) -> list[str]:
    if following := next_selector(page):
        return [f"next = {_quoted(following)}"]
    if parameter := page_parameter(page):
        return [f'next = {{ parameter = {_quoted(parameter)}, pages = "detect" }}']
    return []


def _entries(page: Page) -> _Kind | None:
    """The page's repeated blocks, each as an item; None without blocks that a field identifies."""
    blocks = best_blocks(page)
    if blocks is None:
        return None
    head = ['item = "Entry"', f"each = {_quoted(blocks.selector)}", f"key = {_quoted(blocks.key or '')}"]
    comment = f"The sample page has {blocks.count} similar blocks: each is a record."
    fields = {field.name: field.rule for field in blocks.fields}
    kind = _Kind(name="listing", comment=comment, head=(*head, *_next_page(page)), fields=fields)
    spider = spider_of(read_recipe(_recipe_text(page.url, [kind], "draft", _TRIED).encode(), "draft.toml"))()
    found = check_page(spider, kind.name, page)
    return kind if len(found.items) == blocks.count and not found.missing else None


def _detail_kind(pages: Sequence[Page]) -> _Kind:
    if _is_article(pages[0]):
        return _Kind(name="article", comment="An article: title, text, authors, dates.", head=('auto = "article"',))
    products = [_product(page) for page in pages]
    name = "product" if products[0] is not None else "item"
    found = page_fields(pages, [_told(product) for product in products])
    if len(found) >= _FEWEST_FIELDS:
        return _repeated_kind(name, found, pages, products)
    if products[0] is None:
        return _GENERIC
    stated = products[0].sku and products[0].found["sku"].source not in _BY_SIGHT
    comment = "A product, as the ready parser reads it. A page without a title becomes a dead letter."
    return _Kind(name=name, comment=comment, head=('auto = "product"', *(('key = "sku"',) if stated else ())))


def _told(product: Any) -> dict[str, Any]:
    """The values of a product whose names are known."""
    return {name: getattr(product, name, None) for name, kind in PRODUCT.items() if not isinstance(kind, tuple)}


def _repeated_kind(name: str, found: Sequence[PageField], pages: Sequence[Page], products: Sequence[Any]) -> _Kind:
    """The fields that the pages have in common, and what the ready parser adds for products."""
    key = next((one.name for wanted in KEYS for one in found if one.name == wanted and one.unique), "")
    first = next((one.name for one in found if one.name == "title"), "" if key else found[0].name)
    fields = {}
    for one in found:
        fields[one.name] = field_rule(one.sources, one.options, required=one.name == first and one.name != key)
    for value in _BY_PARSER:
        if value not in fields and all(getattr(product, value, None) for product in products):
            kind = ', type = "list", of = "url"' if value == "images" else ""
            fields[value] = f"{{ product = {_quoted(value)}{kind} }}"
    comment = (
        f"What {len(pages)} pages have in common. A page without its key or a required field becomes a dead letter."
    )
    return _Kind(name=name, comment=comment, head=(f"key = {_quoted(key)}",) if key else (), fields=fields)


_GENERIC = _Kind(
    name="page",
    comment="A page.",
    fields={
        "title": '{ css = "title", required = true }',
        "headline": '{ css = "h1" }',
        "text": '{ sources = [{ css = "main" }, { css = "article" }, { css = "body" }], type = "markdown" }',
    },
)


def _found_only(kind: _Kind, page: Page) -> _Kind:
    """The kind without the fields that find nothing when the finished recipe is tried on the page."""
    if not kind.fields:
        return kind
    text = _recipe_text(page.url, [kind], "draft", _TRIED)
    spider = spider_of(read_recipe(text.encode(), "draft.toml"))()
    found = {note.field for note in check_page(spider, kind.name, page).notes if note.value not in (None, [])}
    fields = {name: rule for name, rule in kind.fields.items() if name in found}
    return msgspec.structs.replace(kind, fields=fields, head=kind.head if "sku" in found else ())


def _product(page: Page) -> Any:  # Any: a value from the ready-made parser
    product = PageView(page).parsed(SourceKind.PRODUCT)
    if product is None or product.title is None:
        return None
    price = product.found.get("price")
    sure = (price is not None and price.confidence >= _SURE) or (product.sku and product.availability)
    return product if sure else None


def _is_article(page: Page) -> bool:
    data = page.structured()
    types = [str(block.get("@type")) for block in data["json_ld"] if isinstance(block, dict)]
    if data["opengraph"].get("og:type") != "article" and not re.search("Article|BlogPosting", " ".join(types)):
        return False
    article = PageView(page).parsed(SourceKind.ARTICLE)
    return article is not None and len(article.text) >= _LONG


# -- the text ----------------------------------------------------------------------------------------------------------


def field_rule(sources: Sequence[SourceTable], options: TypeOptions, *, required: bool) -> str:
    """The definition of a field as TOML."""
    table: dict[str, Any] = {}
    table |= sources[0] if len(sources) == 1 else {"sources": list(sources)}
    if options.type is not FieldType.TEXT:
        table["type"] = options.type.value
    if options.currency is not None:
        table["currency"] = options.currency
    if required:
        table["required"] = True
    return toml_value(table)


def recipe_text(
    start: Sequence[str], kinds: Sequence[tuple[str, str, Sequence[str], dict[str, str]]], ref: str, message: str
) -> str:
    """The text of a recipe: of each page kind its name, a comment, its keys and its fields, as TOML."""
    made = [_Kind(name=name, comment=told, head=tuple(head), fields=fields) for name, told, head, fields in kinds]
    text = _recipe_text(start[0], made, ref, message)
    listed = ", ".join(map(_quoted, start))
    return text.replace(f"start = [{_quoted(start[0])}]", f"start = [{listed}]", 1)


def _recipe_text(start: str, kinds: list[_Kind], ref: str, message: str) -> str:
    lines = [
        f"# A spider without code. Drafted from {start if start.isprintable() else ascii(start)}",
        f"# {message} Edit it as you like, then:",
        f"#   gossamer check {ref} URL    what each rule finds on a page",
        f"#   gossamer crawl {ref}        crawl",
        "",
        f"start = [{_quoted(start)}]",
        "",
        "[scope]",
        "# limit = 100                   # pages in all, while you try things out",
        '# exclude = ["/cart", "*.pdf$"]  # paths to leave alone, written as in robots.txt',
    ]
    for kind in kinds:
        lines += ["", f"# {kind.comment}", f"[pages.{kind.name}]", *kind.head]
        if kind.fields:
            lines += [
                "",
                f"[pages.{kind.name}.fields]",
                *(f"{toml_key(name)} = {rule}" for name, rule in kind.fields.items()),
            ]
    return "\n".join(lines) + "\n"


def _instead(kind: _Kind) -> str:
    """A kind as a comment: the fields available on the list itself."""
    fields = [f"fields.{toml_key(name)} = {rule}" for name, rule in kind.fields.items()]
    lines = [f"# {kind.comment} To take them instead, let [pages.{kind.name}] be:", *kind.head, *fields]
    return "\n" + "\n".join([lines[0], *(f"#   {line}" for line in lines[1:])]) + "\n"


def _quoted(text: str) -> str:
    """A text as TOML, in single quotes if that saves escapes."""
    if ('"' in text or "\\" in text) and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
