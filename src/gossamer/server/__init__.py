"""The HTTP API: thin. The door (door.py) checks every request first: its host, key, rate and scope. Each `*_routes.py`
holds the endpoints of one concern; they call project/ and return its values."""
