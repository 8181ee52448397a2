"""The peers: each a script that crawls the bench site as its own users would. They live in a venv of their own."""
