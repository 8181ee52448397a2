"""Which files are recipes, by their names."""

from __future__ import annotations

ENDINGS = (".toml", ".yaml", ".yml")


def is_recipe_name(name: str) -> bool:
    """Could a file of this name be a recipe?"""
    return name.lower().endswith(ENDINGS)
