"""Scrapy items as our records: their values as JSON, their type, and their key.

The key consists of the fields that GOSSAMER_ITEM_KEYS names; without them it is that of any item without a declared key
(pipeline/steps.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from itemadapter import ItemAdapter
from scrapy.http import Response
from scrapy.settings import Settings as ScrapySettings

from ...errors import ParseFailed
from ...model.item import KeyedDict
from .settings_table import KEYS, item_key_fields


class ScrapyItem(KeyedDict):
    """An item, together with the object it was made from."""

    __slots__ = ("item", "response")

    def __init__(
        self, values: Mapping[str, Any], *, type: str, key: str, item: Any, place: str, response: Response | None
    ) -> None:
        super().__init__(values, type=type, key=key, place=place)
        self.item = item
        self.response = response


def item_of(item: Any, spider: str, settings: ScrapySettings, place: str, response: Response | None) -> ScrapyItem:
    """The item as it is stored. `place` stands for its page. A dict, which has no class, gets the type of its spider:
    dicts of two spiders for one page are different things. Raises ParseFailed."""
    kind = spider if type(item) is dict else type(item).__name__
    values = {str(name): plain(value) for name, value in ItemAdapter(item).asdict().items()}
    key = _key(values, item_key_fields(settings, kind), kind)
    return ScrapyItem(values, type=kind, key=key, item=item, place=place, response=response)


def _key(values: Mapping[str, Any], fields: tuple[str, ...], kind: str) -> str:
    found = [values.get(name) for name in fields]
    for name, value in zip(fields, found, strict=True):
        if value is None or value == "":
            raise ParseFailed(f"{kind}: {name} is empty, but {KEYS} makes it the item's key. Fill it in.")
    if len(found) == 1:
        return found[0] if isinstance(found[0], str) else msgspec.json.encode(found[0]).decode()
    return msgspec.json.encode(found).decode() if found else ""


def plain(value: Any) -> Any:
    """The value as Scrapy's own exports write it: bytes as text, any collection as a list."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(one) for one in value), key=repr)
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value
