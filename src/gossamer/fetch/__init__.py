"""Stage 3: from a task to a raw page, politely and within limits."""
