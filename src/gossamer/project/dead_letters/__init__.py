"""Dead letters, and the story of a URL: its attempts, why it was given up, replay and purge."""
