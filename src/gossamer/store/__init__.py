"""Stage 6: records with their history, the audit log, and the archive of raw pages."""
