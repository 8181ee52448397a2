"""Single pages for clients: fetched, read in child processes, answered in the formats that were asked for."""
