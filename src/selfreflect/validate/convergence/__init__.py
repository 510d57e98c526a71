"""How small an experiment gives the same ranking of strategies."""
