"""Scrapyd's API, for clients and scripts that know it: a job is scheduled, listed and cancelled as there."""
