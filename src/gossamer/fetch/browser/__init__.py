"""Pages made by their scripts: a pool of browsers, kept behind the gatehouse and never left alone."""
