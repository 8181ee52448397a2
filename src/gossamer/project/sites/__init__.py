"""Sites: their pace and queue, orders of operators, learned routes, proxies, sessions."""
