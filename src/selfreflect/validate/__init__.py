"""Studies of whether a metric, with a certain judge, can be trusted."""
