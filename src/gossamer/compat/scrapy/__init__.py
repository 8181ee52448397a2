"""Runs Scrapy projects unchanged: a Scrapy spider class becomes one of ours.

Scrapy's requests, responses, selectors, items and pipelines are used as they are. Our queue, pace, routes and stores
replace its engine, scheduler and downloader. Nothing here starts Twisted's reactor, and nothing here is loaded without
a Scrapy project.
"""
