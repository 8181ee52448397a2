"""A recipe with healed rules above those of its file (model/healing.py): the same spider, another version of it.

The sources are read by the reader of recipes, with its checks and bounds: nothing that the state holds is compiled in
another way. The items of healed fields carry the number of the version in their schema, so that history can say which
rules gave a value. How it fails: BadRecipe for sources that this version cannot read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any

import msgspec

from ..model.healing import EACH, RulesVersion
from .edit import definition
from .model import Field, Recipe
from .reader import read_tree
from .spider import RecipeSpider, spider_of
from .table import BadRecipe
from .text import tree_of


def raw_field(recipe: Recipe, kind: str, name: str, *, rules: RulesVersion | None = None) -> Any:
    """The definition of a field as the file has it, or as the healed rules make it. A field that the file does not
    write, as that of a ready parser, has its type."""
    fields = tree_of(recipe.text.encode(), recipe.file).values.get("pages", {}).get(kind, {}).get("fields", {})
    raw = fields.get(name) if isinstance(fields, dict) else None
    known = next((one for one in recipe.kinds[kind].fields if one.name == name), None) if kind in recipe.kinds else None
    if raw is None and known is not None:
        raw = _typed(known)
    for one in rules.fields if rules is not None else ():
        if one.place == (kind, name):
            raw = definition(raw, one.sources)
    return raw


def each_with(old: Any, sources: Sequence[Mapping[str, Any]]) -> Any:
    """The rule for the blocks of a list: these and, for pages of the former layout, those of the `old` one."""
    selectors = [one["css"] for one in sources]
    if isinstance(old, dict) and set(old) == {"css"}:
        old = old["css"]
    return ", ".join(dict.fromkeys([*selectors, old] if isinstance(old, str) else selectors))


def _typed(field: Field) -> dict[str, Any]:
    raw: dict[str, Any] = {"type": field.options.type.value}
    if field.options.of is not None:
        raw["of"] = field.options.of.value
    if field.sources:
        raw[field.sources[0].kind.value] = field.sources[0].name  # of a ready parser
    return {**raw, "required": True} if field.required else raw


def with_rules(spider: RecipeSpider, rules: RulesVersion) -> RecipeSpider:
    """The spider with these rules above those of its file. Raises BadRecipe."""
    recipe = spider.recipe
    made = _spider_class(recipe.text, recipe.file, msgspec.json.encode(rules))()
    vars(made).update(vars(spider))
    return made


@lru_cache(maxsize=64)
def _spider_class(text: str, file: str, rules_json: bytes) -> type[RecipeSpider]:
    tree, rules = tree_of(text.encode(), file), msgspec.json.decode(rules_json, type=RulesVersion)
    recipe = read_tree(tree)
    values = deepcopy(tree.values)
    for one in rules.fields:
        kind = values.get("pages", {}).get(one.kind)
        if not isinstance(kind, dict) or one.kind not in recipe.kinds:
            raise BadRecipe.single(recipe.file, None, f"The healed rules name a page kind that it lacks: {one.kind}.")
        if one.field == EACH:
            kind["each"] = each_with(kind.get("each"), one.sources)
            continue
        fields = kind.setdefault("fields", {})
        if not isinstance(fields, dict):
            raise BadRecipe.single(recipe.file, None, f"pages.{one.kind} has no table of fields that can be healed.")
        fields[one.field] = raw_field(recipe, one.kind, one.field, rules=rules)
    healed: dict[str, dict[str, int]] = {}
    for one in rules.fields:
        healed.setdefault(one.kind, {})[one.field] = one.since
    made = spider_of(read_tree(msgspec.structs.replace(tree, values=values)), healed=healed)
    made._source_text = f"{recipe.text}\n{rules_json.decode()}"
    made.rules_version = rules.version
    return made
