"""The boards: one row for each spider and each site, with its last runs."""
