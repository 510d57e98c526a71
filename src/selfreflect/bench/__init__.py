"""Times this project's engine against the published schedule, one request per target token.

Entry: ``measure.Bench`` times items, ``result.Result`` collects what it measures, ``result.to_json`` and
``tables`` present it.
"""
