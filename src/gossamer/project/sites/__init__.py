"""Sites: their pace and queue, learned routes, proxies, sessions."""
