"""Parsing archived pages again: no request is made, all cores work, and what comes out replaces what was stored.

orders.py  what goes to a child process and comes back
child.py   a child: raw pages in, records out
crew.py    the children at work, and what happens when one dies over a page
run.py     a whole run: which pages, what is stored
preview.py what a run would change
spiders.py which spider parses a page
letters.py dead letters that are parsed again instead of being fetched again
"""
