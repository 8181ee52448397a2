"""Reading recipes: TOML and YAML mean the same, and every fault names its line and what is allowed there."""

from __future__ import annotations

from textwrap import dedent

import msgspec
import pytest

from gossamer.parse.spider import spider_version
from gossamer.recipe.model import Transform
from gossamer.recipe.reader import read_recipe
from gossamer.recipe.table import BadRecipe
from gossamer.recipe.text import toml_lines
from tests.unit.recipes import recipe

TOML = """\
# A shop.
name = "lamps"
start = ["https://shop.example/"]

[scope]
domains = ["shop.example"]
exclude = ["/cart"]
depth = 3

[politeness]
rate = "2/s"
robots = true

[quality]
minimum = 0.8

[pages.listing]
follow = [
  { css = "h3 a", to = "product", priority = 8 },
]
next = "a.next"

[pages.product]
item = "Lamp"
key = "sku"

[pages.product.fields]
sku = { css = ".sku" }
title = { css = ["h1", "h2"], required = true }
price = { css = ".price", type = "money", currency = "EUR" }
"""

YAML = """\
name: lamps
start: [https://shop.example/]
scope: {domains: [shop.example], exclude: [/cart], depth: 3}
politeness: {rate: 2/s, robots: yes}
quality: {minimum: 0.8}
pages:
  listing:
    follow:
      - {css: h3 a, to: product, priority: 8}
    next: a.next
  product:
    item: Lamp
    key: sku
    fields:
      sku: {css: .sku}
      title: {css: [h1, h2], required: true}
      price: {css: .price, type: money, currency: EUR}
"""


def faults(text: str, file: str = "shop.toml") -> list[str]:
    with pytest.raises(BadRecipe) as caught:
        read_recipe(dedent(text).encode(), file)
    return caught.value.lines()


def only_fault(text: str, file: str = "shop.toml") -> str:
    (line,) = faults(text, file)
    assert "\n" not in line
    return line


def plain(value):
    """A recipe as dicts and texts, without what differs between two files on purpose."""
    if isinstance(value, msgspec.Struct):
        names = [
            name for name in value.__struct_fields__ if name not in ("text", "file") or isinstance(value, Transform)
        ]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple):
        return [plain(entry) for entry in value]
    return getattr(value, "selector", None) or getattr(value, "pattern", None) or value


def test_toml_and_yaml_are_two_spellings_of_one_recipe():
    toml, yaml = read_recipe(TOML.encode(), "a.toml"), read_recipe(YAML.encode(), "a.yaml")

    assert plain(toml) == plain(yaml)
    assert plain(toml) != plain(read_recipe(TOML.replace("h3 a", "h2 a").encode(), "a.toml"))


def test_a_recipe_becomes_a_spider_with_typed_items():
    spider = recipe(TOML)

    assert (spider.name, spider.start_urls, spider.allowed_domains) == (
        "lamps", ("https://shop.example/",), ("shop.example",),
    )  # fmt: skip
    assert (spider.rate, spider.robots, spider.max_depth, spider.min_quality) == ("2/s", True, 3, 0.8)
    assert {"listing", "product"} <= set(spider._callbacks)
    lamp = spider._shapes["product"].item
    assert (lamp.__name__, lamp.__item_key__) == ("Lamp", ("sku",))
    required = {field.name: field.required for field in msgspec.structs.fields(lamp) if field.name != "url"}
    assert required == {"sku": True, "title": True, "price": False}


def test_the_version_of_a_recipe_changes_with_its_text_alone():
    one, same, other = recipe(TOML), recipe(TOML), recipe(TOML.replace("h3 a", "h2 a"))

    assert spider_version(type(one)) == spider_version(type(same))
    assert spider_version(type(one)) != spider_version(type(other))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("spiders/Book_Shop.toml", "book-shop"),
        ("größe.toml", "größe"),
        ("gro\u0308ße.toml", "größe"),
        ("数据.toml", "数据"),
        ("हिन्दी.toml", "हिन्दी"),
        ("!.toml", "recipe"),
    ],
)  # fmt: skip
def test_a_recipe_without_a_name_is_called_after_its_file(file, name):
    assert recipe(TOML.replace('name = "lamps"\n', ""), file).name == name
    assert recipe(TOML.replace("lamps", name)).name == name


@pytest.mark.parametrize("sources", ['sources = ["h1",\n "h2",\n 7]', "sources = [\n'h1', 'h2',\n7]"])
def test_a_source_that_is_none_is_told_with_its_own_line(sources):
    told = only_fault(f'start = "https://shop.example/"\n[pages.a.fields]\nb = {{ {sources} }}')

    assert told.startswith("shop.toml, line 5: pages.a.fields.b.sources[2] should be a CSS selector")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"money"', '"monney"', 'type = "monney" is not a type. Did you mean "money"? Allowed: text, int'),
        ("start =", "strat =", 'strat is not a key of a recipe. Did you mean "start"?'),
        ("priority = 8", 'priority = "8"', "should be a whole number"),
        ('to = "product"', 'to = "prodct"', 'is not a page kind of this recipe. Did you mean "product"?'),
        ('"h3 a"', '"h3 a["', "follow[0].css: The CSS selector 'h3 a['"),
        ("https://shop.example/", "shop", "start[0]"),
        ("depth = 3", "depth = -3", "scope.depth = -3 should be a whole number, 0 or more"),
        ("2/s", "quickly", "'quickly' is not a rate"),
        ("robots = true", 'robots = "yes"', "should be true or false"),
        ("0.8", "80", "a share between 0 and 1"),
        ('"/cart"', '"cart"', "is not a path pattern"),
        ('["shop.example"]', '["https://shop.example"]', "is not a domain"),
        ('key = "sku"', 'key = "skuu"', 'Did you mean "sku"?'),
        ('to = "product", ', 'to = "product", request = { form = { a = true } }, ', "neither text nor number"),
        ('to = "product", ', 'to = "product", request = { methd = "POST" }, ', 'Did you mean "method"?'),
        ('to = "product", ', 'to = "product", request = { json = 1, body = "a" }, ', "has more than one body"),
        ('next = "a.next"', 'next = { parameter = "p", request = { body = "1" } }', 'a place for the number: "{p}"'),
        ('next = "a.next"', 'next = { parameter = "p", request = { body = "{p}" } }', "needs `pages` or `total`"),
        ('"https://shop.example/"', '{ url = "https://shop.example/", method = "GO ON" }', "has the method 'GO ON'"),
        ('"https://shop.example/"', '{ method = "POST" }', "start[0]"),
        ('"https://shop.example/"', "7", "should be an address, or a table"),
        ('"EUR"', '"euros"', "a code of three letters"),
        ("required = true", "requird = true", 'Did you mean "required"?'),
        ("required = true", "required = true, default = 'x'", "is required and has a default"),
        ('css = ".price"', 'xpath = "//a["', "The XPath '//a['"),
        ('css = ".price"', 'json = "price"', "It begins with $"),
        ('css = ".price"', 'regex = "("', "is not a valid regular expression"),
        ('css = ".price"', 'css = ""', "should be a text in quotes"),
        ('css = ".price"', 'css = ".a", structured = "Product.price"', "write sources ="),
        ('css = ".price"', 'product = "prise"', 'Did you mean "price"?'),
        ('css = ".price", ', "", "has no source. Allowed: css, xpath"),
        ('currency = "EUR"', 'zone = "UTC"', "zone does nothing here; it is for date and day"),
        ('currency = "EUR"', 'default = "dear"', "default"),
        ('currency = "EUR"', 'transforms = ["stripp"]', 'Did you mean "strip"?'),
        ('currency = "EUR"', 'transforms = ["split"]', 'like { split = "," }'),
        ('currency = "EUR"', "transforms = [{ replace = 'a', with = '\\9' }]", "invalid group reference"),
        ('"money", currency = "EUR"', '"date", format = "%Q"', "is not a date format"),
        ('"money", currency = "EUR"', '"date", languages = ["xx"]', "Unknown language(s): 'xx'"),
        ('"money", currency = "EUR"', '"date", zone = "Mars/Crater"', "is not a time zone"),
        ("[pages.listing]", "[pages.rate]", "cannot be a page kind"),
        ("[pages.listing]", "[pages.recipe]", "Reserved names: allowed_domains, "),
        ("[pages.listing]", "[pages.parse]", "cannot be a page kind"),
        ('currency = "EUR"', 'transforms = [{ split = "" }]', 'like { split = "," }'),
        ('currency = "EUR"', 'transforms = [{ number = "x" }]', 'like "number" or { number = "," }'),
        ('currency = "EUR"', "transforms = [{ cut = 0 }]", "like { cut = 200 }"),
        ('currency = "EUR"', "transforms = [{ lower = 1 }]", 'like "lower"'),
        ('"money", currency = "EUR"', '"bool", true = ["Yes"], false = ["no", "yes"]', '"yes" stands in `true` and'),
        ('"money", currency = "EUR"', '"date", format = ["%d.%m.%y", "%d %b"]', '"%d %b" has no year'),
        ('"money", currency = "EUR"', '"date", default = "yesterday"', 'default = "yesterday" should be a date'),
        ('"money", currency = "EUR"', '"float", default = inf', "default = inf should be a float"),
        ('css = ".price"', 'css = ".price", regex = 0x' + "f" * 9000, "more than 18 digits"),
        ("[quality]\nminimum = 0.8\n", "[[quality]]\nminimum = 0.8\n", "should be a table"),
        ('name = "lamps"', 'name = "my lamps"', "cannot be a spider's name"),
    ],
)  # fmt: skip
def test_a_fault_names_its_line_and_what_is_allowed(old, new, words):
    line = TOML.count("\n", 0, TOML.index(old)) + 1

    told = faults(TOML.replace(old, new, 1))

    assert any(one.startswith(f"shop.toml, line {line}: ") and words in one for one in told), told


def test_every_fault_is_told_at_once_and_the_message_is_one_line():
    with pytest.raises(BadRecipe) as caught:
        read_recipe(TOML.replace('"money"', '"gold"').replace("robots = true", "robots = 5").encode(), "shop.toml")

    assert [line.partition(":")[0] for line in caught.value.lines()] == ["shop.toml, line 12", "shop.toml, line 30"]
    assert str(caught.value).endswith("(There is 1 more; `gossamer check shop.toml` lists them.)")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "shop.toml: The recipe is empty"),
        (b"   \n# only a comment\n", "shop.toml: The recipe is empty"),
        (b'start = "\xff"', "shop.toml, line 1: The text is not UTF-8 here"),
        (b'start = "x"\nstart = "y"', "shop.toml, line 2: This is not valid TOML: Cannot overwrite a value"),
        (b"a = [1,\n2", "shop.toml, line 2: This is not valid TOML"),
        (b"x = 1\n" + b"a." * 100_000 + b"a = 1", "shop.toml, line 2: A key has more than 60 parts"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "shop.toml: It is nested too deeply"),
        (b"x = 1\na = " + b"9" * 5000, "shop.toml, line 2: A number has more than 18 digits"),
        (b"#" * 10_000_000, "shop.toml: It has 9,766 KB; a recipe may have 256 KB at most."),
    ],
)  # fmt: skip
def test_a_file_that_is_no_recipe_is_refused_in_one_line(content, told):
    with pytest.raises(BadRecipe) as caught:
        read_recipe(content, "shop.toml")

    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: [", "line 2: This is not valid YAML"),
        ("start: x\nstart: y", 'line 2: The key "start" is repeated here'),
        ("start: !!python/object:os.system x", "line 1: !!python/object:os.system"),
        ("start: !mine x", "line 1: !mine"),
        ("- a\n- b", "line 1: A recipe must be a table of keys"),
        ("? [a]\n: b", "line 1: A key is a word or a text"),
        ("a: 1\n---\nb: 2", "This is not valid YAML"),
        ("a: \x01", "line 1: This is not valid YAML"),
        ("a: 1\nb: " + "9" * 5000, "line 2: A number has more than 18 digits"),
        ("a: 1\nb: 0x" + "f" * 9000, "line 2: A number has more than 18 digits"),
        ("a: &a {css: b}\nb:\n  <<: *a", "line 3: The key \"<<\" would mix tables"),
        ("&a [*a]", "nested deeper than 30 levels"),
        ("[" * 600, "nested deeper than 30 levels"),
        ("a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
        ), "holds more than 50,000 values"),
    ],
)  # fmt: skip
def test_yaml_is_plain_or_refused(text, told):
    with pytest.raises(BadRecipe) as caught:
        read_recipe(text.encode(), "shop.yaml")

    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_faults_in_yaml_have_lines_too():
    told = faults(YAML.replace("type: money", "type: monney").replace("to: product", "to: prodct"), "shop.yml")

    assert [line.partition(":")[0] for line in told] == ["shop.yml, line 9", "shop.yml, line 17"]


def test_several_items_per_page_need_a_key():
    told = only_fault(
        """
        start = "https://shop.example/"
        [pages.list]
        each = "li"
        [pages.list.fields]
        name = "b"
        """
    )

    assert told == (
        "shop.toml, line 4: pages.list gives several items per page, so it needs a `key`: "
        "the field that tells them apart."
    )


def test_lines_are_known_in_every_form_that_toml_has():
    text = dedent(
        '''\
        title = "a" # line 1
        "quoted key" = 1
        a.b.c = 3
        long = """
        [not.a.table]
        """
        list = [
          1,
          { x = 1, y = [
            2 ] },
        ]

        [t."dotted.key"]
        z = '\\'
        [[entries]]
        n = 1
        [entries.inner]
        m = 2
        [[entries]]
        n = 3
        '''
    )

    lines = toml_lines(text)

    assert {path: lines[path] for path in lines if len(path) > 0} == {
        ("title",): 1,
        ("quoted key",): 2,
        ("a",): 3, ("a", "b"): 3, ("a", "b", "c"): 3,
        ("long",): 4,
        ("list",): 7, ("list", 0): 8, ("list", 1): 9, ("list", 1, "x"): 9, ("list", 1, "y"): 9, ("list", 1, "y", 0): 10,
        ("t",): 13, ("t", "dotted.key"): 13, ("t", "dotted.key", "z"): 14,
        ("entries",): 15, ("entries", 0): 15, ("entries", 0, "n"): 16,
        ("entries", 0, "inner"): 17, ("entries", 0, "inner", "m"): 18,
        ("entries", 1): 19, ("entries", 1, "n"): 20,
    }  # fmt: skip
