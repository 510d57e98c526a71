"""The parts of ``benchmarks/gpu.py``, each a function that takes a setting and writes results."""
