-- The figures of a project: every attempt is counted once, in its minute, in the commit that stores it.
--
--   figure_sheets  minutes in which attempts are still counted, one row per writer: no two wait for each other
--   figures        rolled up: minutes (for a day), ten minutes (for 30 days), and the total of everything in the row
--                  with span 0. The figures are a JSON object: src/gossamer/model/figures.py

CREATE TABLE figure_sheets (
    start   bigint NOT NULL,                -- seconds since the epoch
    writer  text NOT NULL,
    figures text NOT NULL,
    PRIMARY KEY (start, writer)
) WITH (fillfactor = 50);                   -- a row is rewritten with every batch

CREATE TABLE figures (
    span    integer NOT NULL,               -- seconds: 60 or 600; 0: everything
    start   bigint NOT NULL,
    figures text NOT NULL,
    PRIMARY KEY (span, start)
);
