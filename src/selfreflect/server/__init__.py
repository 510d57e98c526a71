"""Servers: the local page (``app``) and the OpenAI-compatible endpoint (``endpoint``), with a common guard.

They need the extras ``app`` and ``serve``, so only the two commands import them, when they run.
"""
