"""Turn the records of a run into tables, figures and a page; no model runs here."""
