"""Agreement with people: ``study.HumanAgreement`` compares a metric's order of summaries with ratings from a
CSV (``ratings.read_ratings``), by Krippendorff's alpha and with the majority."""
