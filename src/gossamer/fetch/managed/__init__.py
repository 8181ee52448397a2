"""Vendors' scraping APIs as a transport. A vendor is data: a table in gossamer.toml, or a preset in presets.toml.

Reading order: transport.py (one request: answered at once, or by a job that is polled), vendor.py (the checked table as
a value), api.py (one call), answers.py (reading a response), batch.py (many requests in one job), callback.py (the
small server that vendors call when a batch is ready), secret_filter.py (removes the key from everything that is shown
or stored).
"""

from .transport import ManagedTransport
from .vendor import PRESETS, Vendor, describe

__all__ = ["PRESETS", "ManagedTransport", "Vendor", "describe"]
