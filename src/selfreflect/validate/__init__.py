"""Can a metric be trusted? ``catalogue.metric`` and ``catalogue.families`` give every metric by name,
``measure.measure`` their values, and a study (``study.Study``, one package each) turns values into a finding."""
