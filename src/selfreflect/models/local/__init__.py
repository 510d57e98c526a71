"""Models that run in this process with torch."""
