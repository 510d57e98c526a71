"""Models: generators that answer requests, and judges with full logits."""
