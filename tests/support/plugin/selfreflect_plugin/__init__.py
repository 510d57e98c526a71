"""Adds to selfreflect from outside, through entry points only."""
