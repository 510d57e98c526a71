"""Measures of summaries' faithfulness; see :mod:`selfreflect.metric.scorer`."""
