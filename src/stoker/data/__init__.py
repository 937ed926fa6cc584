"""Samples: where they are, which come when, and how they become batches."""
