"""How small an experiment gives the same ranking of strategies: :class:`~.study.Convergence`.

``resampling`` draws fewer questions, answers and words from scores, and says how many questions separate two
strategies.
"""
