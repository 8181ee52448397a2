"""Which file holds which verb. Only the file of the verb in use is imported: starting quickly is a feature."""

from __future__ import annotations

from importlib import import_module

HOMES = {
    "crawl": "crawl",
    "demo": "demo",
    "worker": "worker",
    "workers": "worker",
    "up": "worker",
    "spool": "spool",
    "scheduler": "worker",
    "serve": "serve",
    "keys": "serve",
    "audit": "serve",
    "callbacks": "callbacks",
    "schedule": "schedule",
    "job": "jobs",
    "status": "jobs",
    "why": "why",
    "dead": "dead",
    "routes": "routes",
    "proxies": "routes",
    "export": "export",
    "history": "records",
    "diff": "records",
    "schemas": "records",
    "quality": "records",
    "reparse": "reparse",
    "warc": "export",
    "prune": "doctor",
    "migrate": "doctor",
    "move": "move",
    "backup": "backup",
    "restore": "backup",
    "new": "project",
    "spiders": "project",
    "settings": "project",
    "doctor": "doctor",
    "version": "project",
    "check": "check",
    "save": "testing",
    "test": "testing",
    "fetch": "fetch",
    "shell": "fetch",
}


def register(arguments: list[str]) -> None:
    """Import the home of the verb that the command line names; all homes when it names none (help, a typo)."""
    named = next((word for word in arguments if not word.startswith("-")), None)
    for home in [HOMES[named]] if named in HOMES else dict.fromkeys(HOMES.values()):
        import_module(f".{home}", __package__)
