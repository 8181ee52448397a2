"""Recipes: spiders without code, in TOML or YAML.

    names.py       which files are recipes
    files.py       a recipe file as a spider class
    text.py        a file's bytes as values with lines (toml_lines.py, yaml_tree.py)
    reading.py     values as a Recipe (model.py), every fault with its line (kinds.py, rules.py, options.py, table.py)
    taking.py      a recipe's fields on a page: sources.py finds, transforms.py and values.py make types of it
                   (numbers.py, dates.py, yes_no.py)
    going.py       where a page leads (paging.py: pages with a number in their address)
    spider.py      the spider class
    inspecting.py  what each rule finds on a page, for `gossamer check`
    drafting/      a recipe from a page, for `gossamer new --recipe`

Nothing is imported here: most commands never see a recipe, and should start quickly.
"""
