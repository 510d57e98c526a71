"""Measure summaries of answers that you have sampled elsewhere."""

from selfreflect import reflect

samples = [
    "Radishes.",
    "Radishes grow quickly.",
    "Lettuce is easy.",
    "Radishes.",
    "Plant lettuce.",
    "radishes",
]
result = reflect(
    "What should I plant first?",
    samples=samples,
    summaries={"both": "Most likely radishes, or lettuce.", "other": "Plant an oak forest."},
)

for group in result.classes:
    print(group.count, "x", group.text)
for name, measures in result.measures.items():
    print(
        f"{name}: score {measures['score']:.3f}, "
        f"recovers {measures['recovered']:.0%} of the information in the answers"
    )
