"""Distributions of structured answers, field by field."""
