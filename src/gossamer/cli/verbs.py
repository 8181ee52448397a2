"""Importing this registers every verb."""

from . import crawl, data, dead, demo, doctor, look, project, prompt, web, why  # noqa: F401
