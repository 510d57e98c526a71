"""Can a metric be trusted? ``catalogue.metric`` and ``catalogue.families`` give every metric by name,
``measure.measure`` their values, and each study (``study.Study``) turns values into a finding."""
