"""Distributions of structured answers by field."""
