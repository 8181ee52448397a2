"""Outputs: records written to targets of the user as they change."""
