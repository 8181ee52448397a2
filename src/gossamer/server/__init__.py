"""The HTTP API: thin. The door (door.py) looks at every request first: its host, key, rate and scope. Each file of
routes holds the endpoints of one concern; they call project and answer."""
