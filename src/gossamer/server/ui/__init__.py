"""The dashboard: pages rendered on the server. A view is a template, and functions that get its values from project."""
