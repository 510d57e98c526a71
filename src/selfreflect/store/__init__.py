"""Run directories on disk.

:class:`selfreflect.store.run.Run` opens one for writing or reading, :func:`selfreflect.store.merge.merge_runs`
puts several together, and :class:`selfreflect.store.journal.Journal` is the append-only file behind both.
"""
