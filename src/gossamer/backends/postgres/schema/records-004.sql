-- What is counted of a project: every attempt once, in the minute in which it was made, in the commit that stores it.
--
--   figure_sheets  minutes into which attempts are still counted, one row for each writer: no two wait for each other
--   figures        rolled up: minutes (a day long), ten minutes (for 30 days), and the total of everything in the row
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
