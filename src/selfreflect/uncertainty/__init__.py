"""Uncertainty estimators on stored answers, and how well they predict which answers are correct."""
