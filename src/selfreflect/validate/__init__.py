"""Whether a metric can be trusted: its competitors, and studies that compare them."""
