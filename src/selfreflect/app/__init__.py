"""The local web page and its JSON API.

Entry: ``server.serve`` runs the server; ``server.application`` is the ASGI application. The package needs the
extra ``app``, so only ``cli/app_command.py`` imports it, when the command runs.
"""
