"""Models that are asked about answers: what they are asked, their stored replies, and what these say."""
