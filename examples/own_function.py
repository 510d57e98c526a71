"""Draw answers and summaries from your own function."""

import random

from selfreflect import reflect


def generate(messages, *, n, temperature, seed):
    """Any model of yours. This one knows two cities, and names the likelier one at temperature 0."""
    if temperature == 0:
        return "Probably Ankara, perhaps Istanbul."
    return random.Random(seed).choices(["Ankara.", "Istanbul."], weights=[3, 1], k=n)


result = reflect(
    "What is the capital of Turkey?",
    generate=generate,
    strategies=["basic"],  # ask the model for everything that it considers possible
    num_answers=5,  # in each half
)
print(result)
