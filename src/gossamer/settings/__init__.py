"""Settings: defaults, then gossamer.toml (found upwards), then GOSSAMER_* variables, then flags. Typed, frozen.

tables.py lists what can be set, reader.py reads it, effective.py derives what applies to a site, a spider and a job.
Only project/ gets the whole `Settings`; every other package gets the part that concerns it.
"""

from .overrides import BY_HAND, overridden
from .reader import COMMAND_LINE, ENV_PREFIX, FILE_NAME, NAMED_TABLES, find_file, keys_of, known_keys, load
from .tables import (
    DEFAULT_TRACKING,
    Browser,
    Domain,
    Managed,
    ProxyPool,
    RouterTable,
    RouteTable,
    ScheduleTable,
    Settings,
)

__all__ = [
    "BY_HAND",
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
    "keys_of",
    "known_keys",
    "load",
    "overridden",
]
