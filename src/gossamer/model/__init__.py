"""Values that travel along the journey of a URL. No I/O in this package."""
