"""Show numbers and untrusted text safely: as text, tables and figures."""
