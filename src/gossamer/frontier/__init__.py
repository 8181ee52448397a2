"""Stage 2: the queue that is the backbone. Contract, admission (scope, dedup), politeness and retry decisions."""
