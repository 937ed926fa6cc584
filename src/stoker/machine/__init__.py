"""The hardware beneath: what it is, what it says, what it limits. Needs no torch."""
