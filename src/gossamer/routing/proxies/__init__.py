"""Proxy pools: where exits come from, which is used next, which rest. Start with `pools.py`."""
