"""Healed rules taken into use, and the version before: as a layer in the state, or in the recipe's file.

What it does: the layer of a recipe (model/healing.py) is a row of the shelf, so every machine has it, also one that
cannot write the recipe's file. `in_use` gives the spider that jobs and reparses work with. How it fails: Misconfigured
for rules without the seal of the project's key, and for rules that this version cannot read; BackendUnavailable.
How it recovers: `gossamer heal SPIDER --undo`; when the file of the recipe changes, the layer ends by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ...errors import Misconfigured
from ...model.healing import EACH, FILE, RULES, HealedField, HealedRules, RulesVersion
from ...model.shelf import ShelfKind
from ...parse.spider import Spider
from ...recipe.edit import healed_each, healed_text
from ...recipe.overlay import each_with, raw_field, with_rules
from ...recipe.reader import read_recipe
from ...recipe.spider import RecipeSpider, spider_of
from ...recipe.table import BadRecipe
from ...recipe.text import tree_of
from ...schedule.authority import demand_own_rules, sealed_rules
from ...settings import Settings
from ..open import Project


async def rules_of(project: Project, name: str) -> HealedRules:
    """The healed rules of a spider; without versions if there are none. Raises Misconfigured."""
    found = await _kind(project).get(name)
    if found is None:
        return HealedRules(spider=name)
    demand_own_rules(project.settings, found)
    return found


async def held_rules(project: Project, spider: RecipeSpider) -> RulesVersion | None:
    """The version in use, sealed or not; None: the file alone holds."""
    found = await _kind(project).get(spider.name)
    return found.in_use(spider.recipe.text) if found is not None else None


async def all_rules(project: Project) -> tuple[HealedRules, ...]:
    """Those of every spider that has some in use. Whether they carry the seal is asked when they are used."""
    return tuple(one for one in await _kind(project).all() if one.current)


async def in_use(project: Project, spider: Spider) -> Spider:
    """The spider with the rules that hold for it now. Raises Misconfigured."""
    if not isinstance(spider, RecipeSpider):
        return spider
    return healed(project.settings, spider, await rules_of(project, spider.name))


def healed(settings: Settings, spider: RecipeSpider, rules: HealedRules) -> RecipeSpider:
    """The spider with these rules, as far as they hold for its file. Raises Misconfigured."""
    if spider.rules_version:
        return spider
    version = rules.in_use(spider.recipe.text)
    if version is None:
        return spider
    demand_own_rules(settings, rules)
    try:
        return with_rules(spider, version)
    except BadRecipe as error:
        raise Misconfigured(
            f"Version {version.version} of the healed rules of {spider.name} cannot be used: {error}."
            f" `gossamer heal {spider.name} --undo` takes the rules before it into use."
        ) from error


async def adopt(project: Project, spider: RecipeSpider, fields: Sequence[HealedField], by: str) -> RulesVersion:
    """Take these rules into use, above those that hold now. Raises Misconfigured if there are none, or if the recipe
    cannot be read with them."""
    if not fields:
        raise Misconfigured("There is no rule to take into use. Name the fields that were only proposed: --field NAME.")
    text, at = spider.recipe.text, project.clock.now()
    file_alone = from_file(spider)

    def add(rules: HealedRules) -> HealedRules:
        new = rules.with_fields(text, tuple(fields), at=at, by=by)
        healed(project.settings, file_alone, sealed_rules(project.settings, new))
        return new

    version = (await _change(project, spider.name, add)).in_use(text)
    assert version is not None
    return version


async def step_back(project: Project, spider: RecipeSpider) -> RulesVersion | None:
    """Take the version before into use; that of the file, in the end. Returns the version that was left; None for
    rules that do not carry the project's seal: these are removed. Raises Misconfigured if none are in use."""
    text, kind = spider.recipe.text, _kind(project)
    found = await kind.get(spider.name)
    left = found.in_use(text) if found is not None else None
    if found is None or left is None:
        raise Misconfigured(f"No healed rules of {spider.name} are in use: {spider.recipe.file} alone holds.")
    try:
        demand_own_rules(project.settings, found)
    except Misconfigured:
        await project.state.shelf.commit([kind.drop(spider.name)])
        return None

    def back(rules: HealedRules) -> HealedRules:
        return rules.without_current(text) if rules.current == left.version else rules

    await _change(project, spider.name, back)
    return left


async def end_rules(project: Project, spider: RecipeSpider) -> None:
    """The file alone holds again, because it has the rules now."""
    if (await rules_of(project, spider.name)).current:
        await _change(project, spider.name, lambda rules: msgspec.structs.replace(rules, current=FILE))


def from_file(spider: RecipeSpider) -> RecipeSpider:
    """The spider as its file has it."""
    return spider_of(spider.recipe)() if spider.rules_version else spider


async def _change(project: Project, name: str, change: Callable[[HealedRules], HealedRules]) -> HealedRules:
    """Replace the rules of a spider, sealed. Rules of somebody without the key are not built upon."""

    def sealed(found: HealedRules | None) -> HealedRules:
        rules = found or HealedRules(spider=name)
        try:
            demand_own_rules(project.settings, rules)
        except Misconfigured:
            rules = HealedRules(spider=name)
        new = change(rules)
        return sealed_rules(project.settings, new) if new is not rules else rules

    return await _kind(project).change(name, sealed) or HealedRules(spider=name)


def _kind(project: Project) -> ShelfKind[HealedRules]:
    return ShelfKind(project.state.shelf, RULES, HealedRules)


# -- the file ------------------------------------------------------------------------------------------------------


def write_rules(settings: Settings, spider: RecipeSpider, fields: Sequence[HealedField], today: str) -> Path:
    """Write these rules into the recipe's file, which is kept beside it as it was. Returns its path. Raises
    Misconfigured, BadRecipe."""
    if not fields:
        raise Misconfigured("There is no rule to write. Name the fields that were only proposed: --field NAME.")
    path, recipe = _path(settings, spider), spider.recipe
    text = path.read_text("utf-8")
    if text != recipe.text:
        raise Misconfigured(f"{recipe.file} has changed meanwhile. Run `gossamer heal {spider.name}` again.")
    for one in fields:
        why = f"healed on {today}, {one.agree} of {one.known} known values agree"
        if one.field == EACH:
            each = tree_of(text.encode(), recipe.file).values["pages"][one.kind].get("each")
            text = healed_each(text, recipe.file, one.kind, each_with(each, one.sources), why)
            continue
        raw = raw_field(recipe, one.kind, one.field)
        text = healed_text(text, recipe.file, one.kind, {one.field: one.sources}, why, unwritten=raw)
    read_recipe(text.encode(), recipe.file)  # before anything is replaced
    _swap(path, text)
    return path


def restore_file(settings: Settings, spider: RecipeSpider) -> Path:
    """Put the file back as it was before the last `write_rules`; the healed one takes its place beside it. Raises
    Misconfigured."""
    path = _path(settings, spider)
    kept = _kept(path)
    if not kept.is_file():
        raise Misconfigured(f"There is no {kept.name}, and no healed rules of {spider.name} are in use.")
    _swap(path, kept.read_text("utf-8"))
    return path


def _path(settings: Settings, spider: RecipeSpider) -> Path:
    for folder in (Path.cwd(), settings.root, settings.root / settings.spiders):
        path = folder / spider.recipe.file
        if path.is_file():
            return path
    raise Misconfigured(f"{spider.recipe.file} cannot be found from here. Go to the folder of the project.")


def _kept(path: Path) -> Path:
    return path.with_name(f"{path.name}.before")


def _swap(path: Path, text: str) -> None:
    try:
        before = path.read_bytes()
        new = path.with_name(f".{path.name}.new")
        new.write_text(text, "utf-8")
        _kept(path).write_bytes(before)
        os.replace(new, path)
    except OSError as error:
        raise Misconfigured(f"{path} cannot be written ({error.strerror}).") from error
