"""Studies of whether a metric with a given judge can be trusted."""
