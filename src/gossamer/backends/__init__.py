"""Fulfilments of the contracts, one folder per technology. They import contracts; nobody but assembly imports them."""
