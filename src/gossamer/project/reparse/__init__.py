"""Parsing archived pages again: no request is made, all cores work, and what comes out replaces what was stored.

Reading order: run.py (a whole run: which pages, what is stored), parser_pool.py (the child processes, and what happens
when one dies over a page), parser_process.py (one child: raw pages in, records out), messages.py (what passes between
the two), spider_refs.py (which spider parses a page), preview.py (what a run would change), dead_letters.py (letters
that are parsed again instead of being fetched again).
"""
