"""Read what users bring: files, standard input, hub data sets, and the published tool's files."""
