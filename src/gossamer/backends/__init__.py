"""Implementations of the contracts, one folder per technology. They import contracts; project/ opens them."""
