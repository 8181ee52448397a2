"""Settings: defaults, then gossamer.toml (found upwards), then GOSSAMER_* variables, then flags. Typed, frozen.

tables.py lists what can be set; reading.py reads it; effective.py says what holds for a site, a spider and a job.
"""

from .browser import Browser
from .managed import Managed
from .proxies import ProxyPool
from .reading import COMMAND_LINE, ENV_PREFIX, FILE_NAME, NAMED_TABLES, find_file, known_keys, load
from .routes import RouterTable, RouteTable
from .schedules import ScheduleTable
from .tables import DEFAULT_TRACKING, Domain, Settings

__all__ = [
    "COMMAND_LINE",
    "DEFAULT_TRACKING",
    "ENV_PREFIX",
    "FILE_NAME",
    "NAMED_TABLES",
    "Browser",
    "Domain",
    "Managed",
    "ProxyPool",
    "RouteTable",
    "RouterTable",
    "ScheduleTable",
    "Settings",
    "find_file",
    "known_keys",
    "load",
]
