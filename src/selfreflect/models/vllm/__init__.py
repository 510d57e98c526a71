"""vLLM, in this process or behind a server in pooling mode.

:class:`~selfreflect.models.vllm.engine.VLLMGenerator` generates; the judges of
:mod:`selfreflect.models.vllm.judge` get hidden states from vLLM and keep the vocabulary projection here.
"""
