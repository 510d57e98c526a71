"""Claims of long answers, with the number of answers that support each."""
