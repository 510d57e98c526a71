"""Read what users bring: files, standard input, hub data sets, and the published tool's files.

Entries: :func:`~selfreflect.sources.questions.load_questions` for questions,
:func:`~selfreflect.sources.items.read_items` for questions with answers and summaries,
:func:`~selfreflect.sources.published.read_published` and ``write_published`` for import and export.
"""
