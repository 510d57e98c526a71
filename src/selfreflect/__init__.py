"""Faithful summaries of a language model's answer distribution, and the SelfReflect metric that scores them."""
