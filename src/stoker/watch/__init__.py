"""Runs as they go: one live page, or a terminal, of all that happens under a folder."""
