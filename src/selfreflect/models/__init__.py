"""Models: generators that answer requests, and judges that expose their full logits."""
