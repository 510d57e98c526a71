"""Generators behind OpenAI-compatible servers, and the client that judges on servers share."""
