"""The scheduler: begins the runs of schedules when they are due. Workers do the rest.

Here: defining.py (from settings to schedules), deciding.py (what becomes of a tick), opening.py (the job of a run),
workshop.py (its spider, made in threads), following.py (what gossamer.toml asks of the book), knowing.py (the book as
the leader knows it), holding.py (who leads), leading.py (`Scheduler`, which asks and acts).
"""

from .deciding import budget_of
from .defining import schedule_of, schedules_of
from .leading import Scheduler
from .opening import Spiders, opening_of, share_of

__all__ = ["Scheduler", "Spiders", "budget_of", "opening_of", "schedule_of", "schedules_of", "share_of"]
