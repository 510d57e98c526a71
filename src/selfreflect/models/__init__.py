"""Models: generators that answer requests, and judges that expose their full logits."""

import os

# Idle OpenMP threads spin by default, so two busy processes starve each other of their cores. Sleeping threads share them. The variable
# counts only if torch is not imported yet, and a value that the user has set stays.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
