"""Run a judge over prefix trees of prompts, every shared token once, and compare what it predicts.

A prompt goes ``tree`` → ``engines`` with ``attention`` → states → ``logits``.
"""
