"""Teach a model to say what it believes: data sets of runs, rewards, and what completions state."""
