"""The demo shop: a small, deterministic web site on loopback, and the spider that crawls it.

Read `spider.py` first: it is the example. `shop.py` serves the site and lists all its oddities, `catalogue.py` decides
what is sold, `pages.py` writes its pages. Nothing here leaves the machine.
"""
