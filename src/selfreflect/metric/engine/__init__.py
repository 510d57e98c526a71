"""Run a judge over prefix trees of prompts, every shared token once, and compare what it predicts.

Entry: :func:`selfreflect.metric.engine.choose.engine_for` gives the engine of a judge, and
:class:`selfreflect.metric.engine.reference.Reference` compares trees with a reference tree. A prompt goes
``tree`` → ``packing`` → ``decoder`` with ``attention`` → states → ``logits``.
"""
