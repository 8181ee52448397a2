"""Renders pages in browsers: a pool of browsers behind a guard proxy, watched so that no process is left over.

Reading order: transport.py (a request in, a response out), pool.py (browsers and their pages), browser_page.py (one
page in one context), main_frame.py (the documents of its main frame), page_actions.py (waiting, actions, reading),
guard.py (the proxy on loopback that checks every address), guard_traffic.py and guard_dialer.py (the traffic through
it, and how it connects), chromium.py (the program and its processes), watchdog.py (ends a browser whose worker is
gone).
"""
