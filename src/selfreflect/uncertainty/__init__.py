"""Uncertainty estimators on stored answers, and their quality as predictors of correctness."""
