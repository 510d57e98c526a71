"""Many questions at once: a data frame in, a data frame out."""

import pandas as pd

from selfreflect import reflect

frame = pd.DataFrame(
    {
        "topic": ["geography", "garden"],
        "question": ["What is the capital of Turkey?", "What should I plant first?"],
        "samples": [
            ["Ankara.", "Ankara.", "Istanbul.", "Ankara.", "Istanbul.", "Ankara."],
            ["Radishes.", "Lettuce.", "Radishes.", "Radishes.", "Lettuce.", "Peas."],
        ],
        "summary": ["Probably Ankara, perhaps Istanbul.", "An oak forest."],
    }
)
results = reflect(frame)
print(results[["topic", "question", "classes", "score", "recovered", "undefined"]].to_string())
