"""The embedded default: frontier, robots cache and records in SQLite files. Several processes may share a file."""
