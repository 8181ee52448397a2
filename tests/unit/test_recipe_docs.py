"""The lists in the guide to recipes are complete and true."""

from __future__ import annotations

from gossamer.recipe.model import ARTICLE, PRODUCT, FieldType, Numbering, Politeness, Scope, SourceKind
from gossamer.recipe.reader import KIND_KEYS, TOP_KEYS
from gossamer.recipe.transforms import NAMES
from tests.docs.manual import ROOT, quoted, read, rows_under, tables_of

GUIDE = read(ROOT / "docs" / "recipes.md")


def first_words(*header: str) -> list[str]:
    return [word for row in rows_under(GUIDE, *header) for word in quoted(row[0])]


def test_every_type_is_in_the_guide():
    assert sorted(first_words("type", "value", "options")) == sorted(FieldType)


def test_every_source_is_in_the_guide():
    assert sorted(first_words("source", "finds")) == sorted(SourceKind)


def test_every_transform_is_in_the_guide():
    told = {word.strip('{" ').partition(" ")[0] for word in first_words("transform", "does")}

    assert told == set(NAMES)


def test_every_table_and_key_is_in_the_guide():
    told = {word.strip("[]").partition(".")[0] for word in first_words("table or key", "meaning")}
    meanings = " ".join(row[1] for row in rows_under(GUIDE, "table or key", "meaning"))

    assert told == set(TOP_KEYS)
    assert {*Scope.__struct_fields__, *Politeness.__struct_fields__} <= set(quoted(meanings))


def test_every_key_of_a_page_kind_and_of_numbered_pages_is_in_the_guide():
    kinds, numbering = [
        [word for row in table[1:] for word in quoted(row[0])]
        for table in tables_of(GUIDE)
        if table[0] == ["key", "meaning"]
    ]

    assert sorted(kinds) == sorted(KIND_KEYS)
    assert sorted(numbering) == sorted(Numbering.__struct_fields__)


def test_the_ready_parsers_give_what_recipes_name():
    from gossamer.extract.article import Article
    from gossamer.extract.product import Product

    assert set(PRODUCT) <= set(Product.__struct_fields__)
    assert set(ARTICLE) <= set(Article.__struct_fields__)
