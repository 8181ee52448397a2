"""The fleet's backends: what is special about each of them, and the crawl on all of them together."""
