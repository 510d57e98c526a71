"""The local web page and its JSON API. It needs the extra ``app``, so only ``cli/app_command.py`` imports it,
when it is run."""
