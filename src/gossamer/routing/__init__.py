"""Stage 3: by which route a page is fetched: router, ladder, budgets, learned routes, blocks, proxies."""
