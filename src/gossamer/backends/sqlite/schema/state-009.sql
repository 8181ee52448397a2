-- The version of the fingerprints in this file (FINGERPRINT_VERSION in model/url.py), in one row.
--
-- The row is written when the file is opened: 1 for a file that knew URLs before this table existed.

CREATE TABLE fingerprints (version INTEGER NOT NULL) STRICT;
