"""Runs as people look at them: gathered, asked, drawn, and written as pages. Knows no torch, and no task."""
