"""Stage 5: from a raw page to items and requests. Reading order:

    page.py, selectors.py, css.py   what a spider sees of a page, and how it selects from it
    spider.py, callbacks.py         what a user writes, and how it is called; timelimit.py: how long it may take
    discovery.py, site.py           spiders by name or file; the spider that needs no code
    links.py, encoding.py, media.py, xml.py   addresses, characters, kinds of content, XML as the web serves it
    feeds.py, sitemaps.py, tables.py          feeds, sitemaps and tables as values
    dates.py, numbers.py            dates and numbers as the web writes them
    structured/, metadata/          what a page says about itself
    product/, article/              ready-made parsers
    recipe/                         spiders without code

Nothing here fetches or stores: crawl/journey.py does both.
"""
