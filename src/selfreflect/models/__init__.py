"""Models: generators that answer requests, and judges that expose their full logits."""

import os

# Read when torch is imported, and by its libraries on their first product; a value that the user has set
# stays.
for _name, _value in {
    # Idle OpenMP threads spin by default, so two busy processes starve each other of their cores. Sleeping
    # threads share them.
    "OMP_WAIT_POLICY": "PASSIVE",
    # oneDNN compiles a kernel for every shape of a product, and both it and torch keep the last 1,024 of
    # them. Passes have ever new numbers of rows, so memory would grow by some 20 MB with every question, up
    # to hundreds. A pass asks for a dozen shapes in each layer.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    "LRU_CACHE_CAPACITY": "64",
}.items():
    os.environ.setdefault(_name, _value)
