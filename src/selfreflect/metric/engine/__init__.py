"""Execution of a judge over prefix trees of prompts, with every shared token computed once.

A prompt goes ``tree`` → ``engines`` with ``attention`` → states → ``logits``.
"""
