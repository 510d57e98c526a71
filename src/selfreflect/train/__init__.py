"""Training of models to state what they believe: data sets, rewards, and parsed statements."""
