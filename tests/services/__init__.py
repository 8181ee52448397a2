"""Real servers for the tests, started from wheels on this machine: no Docker, no installation, none left behind.

One file per kind of server. A server that is not installed skips its tests on a laptop and fails them in CI.
"""
