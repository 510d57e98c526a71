"""Summaries in a known order: ``study.RankedSets`` asks how often a metric prefers the better one,
``length.LengthStudy`` whether it prefers longer ones, ``judges.JudgeAgreement`` whether several judges agree."""
