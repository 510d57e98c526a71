"""The studies: each makes items, or takes them, and turns the values of metrics into a finding."""
