"""Models: generators that answer requests, and judges that expose their full logits.

:mod:`selfreflect.models.spec` makes one from a :class:`~selfreflect.models.spec.ModelSpec`;
:mod:`selfreflect.models.base` says what a generator is, :mod:`selfreflect.models.judge` what a judge is.
"""
