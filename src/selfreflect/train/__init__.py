"""What a trainer needs to teach a model to say what it believes: rewards, and what completions state."""
