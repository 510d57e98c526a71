"""Reports: tables, figures and a page from a run's records, without any model."""
