"""The HTTP API: thin. Each file of routes holds the endpoints of one concern; they call project and answer."""
