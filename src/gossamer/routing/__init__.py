"""Stage 3: which way a page is fetched: router, ladder, budgets, learned routes, blocks, proxies."""
