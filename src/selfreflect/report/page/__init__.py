"""The report page; :func:`selfreflect.report.page.build.report_page` builds it from a template, scripts and
packed data."""
