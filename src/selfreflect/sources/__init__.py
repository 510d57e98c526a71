"""Sources of data: files, standard input, hub data sets, and the published tool's files."""
