"""Proxy pools: where proxies come from, which is used next, which rest. Start with `pools.py`."""
