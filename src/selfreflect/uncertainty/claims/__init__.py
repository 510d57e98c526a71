"""Claims of long answers, and how many answers support each."""
