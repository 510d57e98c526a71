"""Times this project's engine against the published schedule.

Entry: ``measure.Bench`` times items, and ``result`` collects and presents what it measures.
"""
