"""Many configurations: what to try, what was tried, and the rest of it."""
