"""Drafts a recipe from a list page and one of the pages that it links to. The caller fetches them.

    for url in detail_links(page): ...             addresses worth fetching, until one of them is HTML
    draft_recipe(page, detail_or_none, "shop")

What it does: the list becomes a page kind that follows its links (stable_selectors.py finds them). On the linked page,
a product gets a rule for every value that the product parser found, if the rule finds the same value or the parser is
confident; an article is left to the article parser; any other page gets title, headline and text. A start page without
a list is drafted as such a page itself. Repeated blocks of the list (blocks.py) are the items if the linked page is
neither product nor article, or was not fetched; otherwise they appear in a comment.
How it fails: nothing raises; the top of the file says which rules were not tried and whether nothing was recognised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from turbohtml import Element

from ..parse.page import Page
from .blocks import best_blocks
from .model import PRODUCT, FieldType, SourceKind, TypeOptions
from .reader import read_recipe
from .sources import PageView, structured_values
from .spider import check_page, spider_of
from .stable_selectors import LinkGroup, best_group, next_selector, page_parameter, selector_for
from .values import UnreadableValue, value_of

_SURE = 0.5  # confidence of a price that marks a product
_BY_SIGHT = ("page", "page script")  # sources of a price that lists of products have too
_NUMBERS = ("sku", "gtin", "mpn")
_LONG = 600  # minimum characters of an article
_MOST_ELEMENTS = 5000
_OFFERS, _RATING = "Product.offers.", "Product.aggregateRating."
# Values of a product in the order of the recipe: their paths in structured data, and words in the class, id or itemprop
# of an element that shows one. Values without such words are not searched among the elements.
_VALUES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "sku": (("Product.sku",), ("sku", "article", "code", "number")),
    "title": (("Product.name",), ("title", "name", "heading")),
    "brand": (("Product.brand",), ("brand", "vendor", "maker", "manufacturer")),
    "price": ((f"{_OFFERS}price", f"{_OFFERS}lowPrice"), ("price", "cost", "amount")),
    "availability": ((f"{_OFFERS}availability",), ()),
    "rating": ((f"{_RATING}ratingValue",), ("rating", "score", "stars")),
    "review_count": ((f"{_RATING}reviewCount", f"{_RATING}ratingCount"), ("review", "count", "votes")),
    "gtin": (("Product.gtin13", "Product.gtin", "Product.gtin12", "Product.gtin14"), ("gtin", "ean", "upc", "isbn")),
    "mpn": (("Product.mpn",), ("mpn",)),
    "description": (("Product.description",), ()),
    "images": (("Product.image",), ()),
    "breadcrumbs": ((), ()),
}
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
    """A few links of the page's list: its first, its middle and its last. Empty for a page without a list."""
    group = _list_of(page)
    return list(dict.fromkeys(group.urls[at] for at in (0, len(group.urls) // 2, -1))) if group is not None else []


def draft_recipe(page: Page, detail: Page | None, ref: str) -> RecipeDraft:
    """The recipe for a start page and, if one was fetched, a page that its list links to. `ref` is its name in
    commands."""
    group = _list_of(page)
    detail = page if group is None else detail
    kind = _found_only(_detail_kind(detail), detail) if detail is not None else _GENERIC
    message, remark = _TRIED, ""
    if detail is None:
        message = _UNTRIED.format(kind=kind.name)
    elif not kind.fields and not kind.head:
        message, remark = _UNRECOGNISED.format(kind=kind.name), " (nothing was recognised)"
        kind = msgspec.structs.replace(kind, fields={"title": _GENERIC.fields["title"]})
    kinds = [_listing(page, group, kind.name), kind] if group is not None else [kind]
    entries = _entries(page)
    if entries is not None and (kind.name == _GENERIC.name or (group is None and _is_price_list(page, entries))):
        kinds, message, remark, entries = [entries], _TRIED if detail is not None else _LIST_ALONE, "", None
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


def _detail_kind(page: Page) -> _Kind:
    product = _product(page)
    if product is not None:
        fields = dict(_product_fields(page, product))
        comment = "A product. A page without a required field, or without its key, becomes a dead letter."
        own_sku = "sku" in fields and "product = " not in fields["sku"]
        return _Kind(name="product", comment=comment, head=('key = "sku"',) if own_sku else (), fields=fields)
    if _is_article(page):
        return _Kind(name="article", comment="An article: title, text, authors, dates.", head=('auto = "article"',))
    return _GENERIC


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


# -- the fields of a product -------------------------------------------------------------------------------------------


def _product_fields(page: Page, product: Any) -> Iterator[tuple[str, str]]:
    """A field, as TOML, for every value that the product parser found on the page."""
    texts = list(_leaf_texts(page))
    for name in _VALUES:
        value = getattr(product, name, None)
        if value in (None, "", ()):
            continue
        kind = PRODUCT[name]
        single = kind[1] if isinstance(kind, tuple) else kind
        currency = value.currency if single is FieldType.MONEY else ""
        options = TypeOptions(type=single, currency=currency or None)
        rules = [f"structured = {_quoted(path)}" for path in _structured(page, name, value, options)]
        if selector := _shown_in(page, name, value, options, texts):
            rules.append(f"css = {_quoted(selector)}")
        if not rules and not _is_sure(product, name, value, texts):
            continue
        parts = [f"sources = [{', '.join(f'{{ {rule} }}' for rule in rules)}]"] if len(rules) > 1 else rules[:]
        parts = parts or [f"product = {_quoted(name)}"]
        if isinstance(kind, tuple):
            parts.append('type = "list"' + (f", of = {_quoted(single)}" if single is not FieldType.TEXT else ""))
        elif single is not FieldType.TEXT:
            parts.append(f"type = {_quoted(single)}")
        if re.fullmatch(r"[A-Z]{3}", currency):
            parts.append(f"currency = {_quoted(currency)}")
        if name == "availability" and rules:
            parts.append("transforms = [{ replace = '.*/', with = \"\" }]")
        if name == "title":
            parts.append("required = true")
        yield name, f"{{ {', '.join(parts)} }}"


def _is_sure(product: Any, name: str, value: Any, texts: list[tuple[Element, str]]) -> bool:
    """May a field rely on the ready-made parser alone? Not with low confidence, nor with a number that continues after
    the part that was read: `123 456 78` is not 123, and as a key it would merge many records."""
    found = product.found.get(name)
    if found is not None and found.confidence < _SURE:
        return False
    if name not in _NUMBERS or found is None or found.source not in _BY_SIGHT:
        return True
    whole = re.compile(rf"(?<!\w){re.escape(str(value))}\W*")
    return any(match.end() == len(text) for _, text in texts for match in whole.finditer(text))


def _structured(page: Page, name: str, value: Any, options: TypeOptions) -> list[str]:
    """The first path of structured data with that value, or None."""
    for path in _VALUES[name][0]:
        found = [_value_or_none(entry, options, page) for entry in structured_values(page.structured(), path)]
        if found and (
            name == "availability" or (list(value) == found if isinstance(value, tuple) else found[0] == value)
        ):
            return [path]
    return []


def _shown_in(page: Page, name: str, value: Any, options: TypeOptions, texts: list[tuple[Element, str]]) -> str | None:
    """The selector of the element that shows the value best, or None."""
    hints = _VALUES[name][1]
    if not hints:
        return None
    # A number in a long sentence is a coincidence; in a few words, or as a price with its currency, it is not.
    longest = {"rating": 25, "review_count": 25, "price": 40}.get(name, len(str(value)) + 3)
    hits = [hit for hit in texts if len(hit[1]) <= longest and _value_or_none(hit[1], options, page) == value]

    def rank(hit: tuple[Element, str]) -> tuple[bool, bool, int]:
        words = " ".join(hit[0].attr(name) or "" for name in ("class", "itemprop", "id")).lower()
        return not any(hint in words for hint in hints), hit[0].tag != "h1", len(hit[1])

    selectors = (selector_for(page, element) for element, _ in sorted(hits, key=rank)[:5])
    return next((selector for selector in selectors if selector is not None), None)


def _leaf_texts(page: Page) -> Iterator[tuple[Element, str]]:
    """Short texts of the page with the elements that contain only them."""
    for found in page.css("h1, h2, span, p, div, td, dd, li, strong, b, em, bdi, ins, a, data")[:_MOST_ELEMENTS]:
        element = found.root
        if isinstance(element, Element) and len(element.children) <= 4 and element.select_one("*") is None:
            text = " ".join(element.text.split())
            if 0 < len(text) <= 200:
                yield element, text


def _value_or_none(raw: Any, options: TypeOptions, page: Page) -> Any:
    try:
        return value_of(raw, options, page)
    except UnreadableValue:
        return None


# -- the text ----------------------------------------------------------------------------------------------------------


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
            lines += ["", f"[pages.{kind.name}.fields]", *(f"{name} = {rule}" for name, rule in kind.fields.items())]
    return "\n".join(lines) + "\n"


def _instead(kind: _Kind) -> str:
    """A kind as a comment: the fields available on the list itself."""
    fields = [f"fields.{name} = {rule}" for name, rule in kind.fields.items()]
    lines = [f"# {kind.comment} To take them instead, let [pages.{kind.name}] be:", *kind.head, *fields]
    return "\n" + "\n".join([lines[0], *(f"#   {line}" for line in lines[1:])]) + "\n"


def _quoted(text: str) -> str:
    """A text as TOML, in single quotes if that saves escapes."""
    if ('"' in text or "\\" in text) and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
