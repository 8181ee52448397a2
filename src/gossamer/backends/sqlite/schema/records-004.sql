-- What is counted of a project: every attempt once, in the minute in which it was made, in the commit that stores it.
--
--   figure_sheets  minutes into which attempts are still counted
--   figures        rolled up: minutes (a day long), ten minutes (for 30 days), and the total of everything in the row
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
