"""Stage 1: when a schedule is due, which URLs a run begins with, and how a budget is spent.

Reading order: triggers.py (when it is due; with zones.py), windows.py (when it may run), definition.py (as users write
it), sources/ (where URLs come from), decisions.py (what happens at a tick), contract.py (the stored schedules),
leader.py (the scheduler, with leadership.py, runs.py and spider_loader.py); change_rate.py and recrawl.py (which pages
a budget is spent on).
"""
