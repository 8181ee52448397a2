"""Upkeep: doctor, retention, backups and moves."""
