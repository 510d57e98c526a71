"""Estimate scores from some of the masked words.

Entry: :class:`selfreflect.metric.sampling.limits.Limits` says when to stop, and
:class:`selfreflect.metric.sampling.sequential.SequentialScoring` scores words of a ``population`` until then.
"""
