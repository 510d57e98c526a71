"""Studies that make their own summaries, whose quality is known: :class:`~.interventions.Interventions`,
:class:`~.dose.ShiftedPercentages` and :class:`~.choice.MultipleChoice`.

``statements`` says in one sentence what the answers of an item say; ``edits`` makes it worse in a known way.
"""
