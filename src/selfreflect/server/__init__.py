"""Servers: the local page (``app``) and the OpenAI-compatible endpoint (``endpoint``), behind one guard.

They need the extras ``app`` and ``serve``, so only the two commands import them, when they run.
"""
