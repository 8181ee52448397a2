"""The archive of a fleet: raw pages in S3 or a compatible store."""
