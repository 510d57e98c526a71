"""Given summaries: ``study.RankedSets`` asks how often a metric prefers the one known to be better,
``length.LengthStudy`` whether it prefers longer ones, ``judges.JudgeAgreement`` whether judges agree."""
