"""Events become counts, progress and logs. No stage imports this room, and it draws nothing: the command line does."""
