"""Endpoints for programs that were written for Firecrawl: /v2 and /v1 at the root of the server.

Thin: conversion.py translates a request of Firecrawl into ours, project/ does the work, and documents.py translates the
results back. No option is ignored silently: those that are not supported are refused (errors.py).
"""
