"""Spiders and recipes of a project: found, drafted, checked, tested on saved pages."""
