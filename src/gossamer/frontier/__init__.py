"""Stage 2: the queue. Contract, admission (scope, dedup), politeness and retry decisions."""
