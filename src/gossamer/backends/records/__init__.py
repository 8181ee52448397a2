"""One record store in two dialects of SQL: what SQLite and PostgreSQL have in common.

Statements are written once, in the words of PostgreSQL with `$1` for a value and `@records` for a table; a `Dialect`
(dialect.py) has the few places that differ. A batch of results is written by writes.py through a `Batch`, the
transaction of a dialect: writers of SQLite take turns, those of PostgreSQL lock rows (record_batch.py of each).
"""
