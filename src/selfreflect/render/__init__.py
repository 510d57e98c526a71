"""Show numbers and untrusted text safely.

:mod:`~selfreflect.render.text` escapes text, :mod:`~selfreflect.render.table` renders a ``Table`` as
Markdown, CSV or for the terminal, and :mod:`~selfreflect.render.charts` draws SVG figures in the style of
:mod:`~selfreflect.render.plots`.
"""
