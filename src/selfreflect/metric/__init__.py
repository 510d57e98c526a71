"""Measure how faithfully summaries describe an answer distribution.

Entry: :class:`selfreflect.metric.scorer.SelfReflect`, one judge that scores the summaries of a question.
``tasks`` is the metric as text, ``prompts`` as token ids, ``distance`` as a formula, and ``engine`` runs the
judge. ``sampling`` scores a part of the words if a user sets a limit.
"""
