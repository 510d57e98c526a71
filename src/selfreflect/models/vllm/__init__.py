"""vLLM, in this process or behind a server in pooling mode."""
