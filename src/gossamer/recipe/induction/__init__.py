"""Rules learned from values: pages whose values are known say where these values stand on pages like them.

Pure: pages and values in, rules with their evidence out. Reading order:

    goal.py        a field whose rule is wanted; when a found value agrees with a known one
    spots.py       every place of a page that can hold a value: texts, attributes, structured data, embedded JSON
    readings.py    how the text of a spot reads as a known value: k-th number, scale, words around it, format of a date
    locators.py    the selectors and labels that lead to an element, with how stable they are
    candidates.py  rules that hold a value on some page, pooled over all pages, and tried on all of them
    words.py       tables of words for booleans and enumerations, and whether they are more than chance
    currency.py    which currency the page writes for a price, and whether the price is struck out
    decision.py    scores, rivals, and what follows: heal, propose or refuse
    induce.py      all of it
    page_fields.py the fields of pages that repeat, without known values: page_places.py, text_types.py
    stability.py   which other places say what a rule reads
    outline.py     the texts of a page with their labels, for a person who chooses values
    matching.py    which record a page, or a block of a list, shows whose address is not that of any record
    repeats.py     the blocks of a list, found by the records in them

Rules are tables as they stand in a recipe, and are tried by the code that runs recipes. Texts of sites become selectors
and words that are compared, never regular expressions. Numbers of spots, candidates and pages are limited.
"""
