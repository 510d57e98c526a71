"""Run directories on disk.

:class:`selfreflect.store.run.Run` opens one for writing or reading, and
:func:`selfreflect.store.merge.merge_runs` puts several together. The append-only files behind both are
:class:`selfreflect.store.journal.Journal`.
"""
