"""Records and figures: queried, exported, shown as tables."""
