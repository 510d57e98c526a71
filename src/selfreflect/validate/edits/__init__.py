"""Studies that make their own summaries, whose quality is known."""
