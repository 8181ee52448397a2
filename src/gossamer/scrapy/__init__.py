"""Scrapy projects, unchanged: a spider class of Scrapy's becomes one of ours.

Scrapy's requests, responses, selectors, items and pipelines are used as they are. In place of its engine, scheduler and
downloader stand our queue, pace, routes and stores. Nothing here starts Twisted's reactor, and nothing here is loaded
where no project of Scrapy's is.
"""
