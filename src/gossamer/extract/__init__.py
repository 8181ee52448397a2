"""What a page says, as values: main text, products, structured data, tables, feeds, sitemaps, dates. Reading order:

    markup.py                         a page as all extractors take it
    links.py, media.py, xml.py        addresses, kinds of content and characters, XML as the web serves it
    structured/, metadata.py          what a page says about itself, each notation read once
    article/, product/                main text, Markdown and clean HTML; products
    tables.py                         tables as rows of texts
    feeds.py, sitemaps.py             feeds and sitemaps
    schema_values.py                  a JSON Schema filled from all of these
    dates.py, numbers.py              dates and numbers as the web writes them

Of Gossamer only values are imported here (model, errors, units): this room could be a package of its own. Nothing
fetches, stores or follows; parse/ and crawl/ do that with the results.
"""
