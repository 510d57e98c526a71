"""Given summaries: ``study.RankedSets`` asks how often a metric prefers the one known to be better,
``length.LengthStudy`` whether it prefers longer ones, ``controls.AgainstControls`` whether it prefers them to
texts that say nothing and to pasted answers."""
