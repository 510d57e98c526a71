"""Models: generators that answer requests, and judges that expose their full logits."""

import os

# Idle OpenMP threads spin by default, and two busy processes then starve each other of their cores: a demo beside another scoring run took
# more than five times as long as with this setting. It counts only if torch is not imported yet.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
