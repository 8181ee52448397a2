"""Stage 1: what to scrape, and when. Triggers and windows are pure decisions; others store them and act on them."""
