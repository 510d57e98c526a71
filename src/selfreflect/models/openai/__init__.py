"""OpenAI-compatible servers: :class:`~selfreflect.models.openai.generator.OpenAIGenerator`.

``endpoint`` keeps secrets, ``protocol`` speaks the API, ``client`` sends, ``retry`` decides whether to try
again.
"""
