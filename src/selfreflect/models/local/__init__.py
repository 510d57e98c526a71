"""Models that run in this process with torch.

:class:`~selfreflect.models.local.generator.HFGenerator` answers requests;
:func:`~selfreflect.models.local.loading.load_causal_lm` loads the model behind it, or behind a judge.
"""
