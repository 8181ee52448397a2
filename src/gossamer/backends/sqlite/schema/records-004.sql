-- The figures of a project: every attempt is counted once, in its minute, in the commit that stores it.
--
--   figure_sheets  minutes in which attempts are still counted
--   figures        rolled up: minutes (for a day), ten minutes (for 30 days), and the total of everything in the row
--                  with span 0. The figures are a JSON object: src/gossamer/model/figures.py

CREATE TABLE figure_sheets (
    start   INTEGER PRIMARY KEY,            -- seconds since the epoch
    figures TEXT NOT NULL
) STRICT;

CREATE TABLE figures (
    span    INTEGER NOT NULL,               -- seconds: 60 or 600; 0: everything
    start   INTEGER NOT NULL,
    figures TEXT NOT NULL,
    PRIMARY KEY (span, start)
) STRICT, WITHOUT ROWID;
