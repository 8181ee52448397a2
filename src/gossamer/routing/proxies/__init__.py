"""Proxy pools: where exits come from, which is taken next, which rest. `pools.py` is the way in."""
