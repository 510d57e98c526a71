"""Estimate scores from some of the masked words, until a limit is reached."""
