"""The embedded archive: raw pages in a folder."""
