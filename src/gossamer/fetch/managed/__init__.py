"""Scraping APIs of vendors as a transport. A vendor is data: a table in gossamer.toml, or a preset in presets.toml.

Reading order: transport.py (one request: answered at once, or a job that is polled), vendor.py (the table, checked, as
a value), api.py (one call), answers.py (what an answer says), batch.py (many requests in one job), callback.py (the
small server that vendors call when a batch is ready), secret_filter.py (the key, taken out of all that is shown or
kept).
"""

from .transport import ManagedTransport
from .vendor import PRESETS, Vendor, describe

__all__ = ["PRESETS", "ManagedTransport", "Vendor", "describe"]
