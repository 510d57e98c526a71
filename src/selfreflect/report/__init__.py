"""Turn the records of a run into tables, figures and a page; no model runs here.

Entries: :class:`~selfreflect.report.run_records.RunRecords` holds the records,
:func:`~selfreflect.report.overview.overview` tabulates strategies,
:func:`~selfreflect.report.comparison.comparison` compares them,
:func:`~selfreflect.report.detail.question_detail` shows one question, and
:func:`~selfreflect.report.page.build.report_page` builds the page.
"""
