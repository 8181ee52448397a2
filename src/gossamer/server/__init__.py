"""The HTTP door: thin. Each file of routes holds the endpoints of one concern; they call project and answer."""
