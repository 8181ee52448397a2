"""Scraping APIs of vendors as a transport. A vendor is data: a table in gossamer.toml, or a preset in presets.toml.

    describing.py  the table, made whole and checked
    vendor.py      what comes of it: a value
    hiding.py      the key, taken out of all that is said or kept (pure)
    trees.py       the JSON of an answer, read without holding up others
    answers.py     what an answer says: the page, or whose fault it is that there is none (pure)
    api.py         one call of the API: the key, the address guard, the limits
    asking.py      what is asked (pure)
    transport.py   one exchange: asked and answered at once, or a job that is polled
    batch.py       many exchanges in one job
    callback.py    the small server that vendors call when a batch is ready

Read transport.py first.
"""

from .describing import PRESETS, describe
from .transport import ManagedTransport
from .vendor import Vendor

__all__ = ["PRESETS", "ManagedTransport", "Vendor", "describe"]
