"""An OpenAI-compatible server in front of any generator: it draws the answer distribution of each question,
and answers with the summary.

Entry: ``server.serve`` runs the server; ``server.application`` is the ASGI application. The package needs the
extra ``serve``, so only ``cli/serve_command.py`` imports it, when the command runs.
"""
