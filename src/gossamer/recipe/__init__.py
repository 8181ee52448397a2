"""Recipes: spiders without code, in TOML or YAML. Reading order:

    model.py       a recipe as values: page kinds, fields, sources, links
    text.py        the bytes of a file as values with their lines
    table.py       typed access to the values that collects faults, with their lines
    reader.py      values become a Recipe: start, scope, politeness, page kinds
    rules.py       the fields in it: sources, types and their options, defaults
    sources.py     where a field is on a page, and the raw values there
    transforms.py  steps on the text that was found
    values.py      text becomes a value of the field's type
    fields.py      the item of a page, with a note on what each rule found
    links.py       the requests that a page leads to: follow rules, next page, numbered pages
    spider.py      the spider class; what each rule finds on a page, for `gossamer check`
    draft.py       a recipe drafted from a page, for `gossamer new --recipe`; stable_selectors.py: CSS that it uses

Nothing is imported here: most commands need no recipe, and should start quickly.
"""
