"""Stage 5: from a raw page to items and requests. Reading order:

    page.py, selectors.py, css.py   what a spider sees of a page, and how it selects from it
    spider.py, callbacks.py         what a user writes, and how it is called; timelimit.py: how long it may take
    discovery.py, site.py           spiders by name or file; the spider that needs no code
    seeds.py, arguments.py          a spider's first requests, and what a crawl may set
    links.py                        which links a page has, and which are followed; forms.py, form_reader.py: forms

What a page says is read in extract/; spiders without code are in recipe/. Nothing here fetches or stores:
crawl/journey.py does both.
"""
