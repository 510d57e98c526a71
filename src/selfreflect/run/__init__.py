"""Runs, which combine settings, stores, models and stages.

:func:`selfreflect.run.experiment.open_experiment` fills a run directory stage by stage;
:func:`selfreflect.run.dry_run.dry_run_directory` counts what that would take.
"""
