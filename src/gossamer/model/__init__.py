"""Values that travel along the journey of a URL. No I/O happens in this room."""
