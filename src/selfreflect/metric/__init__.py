"""Measure how faithfully summaries describe an answer distribution; see :mod:`selfreflect.metric.scorer`."""
