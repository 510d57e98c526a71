"""SaySelf (Xu et al. 2024, arXiv 2405.20974): train a model to state its confidence and why it doubts.

``clusters`` sorts the sampled answers of a run and makes confidences of them, ``rationales`` lets a model
describe what they disagree about, ``examples`` makes training data of both, ``training`` trains on it, and
``evaluation`` compares the result with baselines.
"""
