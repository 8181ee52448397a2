"""Endpoints for programs that were written for Firecrawl: /v2 and /v1 at the root of the server.

Thin: what a client of Firecrawl asks for is put into our own words (conversion.py), done by project, and what comes of
it is put into theirs (documents.py). Nothing is asked for in vain: an option that is not done is refused (errors.py).
"""
