"""Requests to models about answers, their stored replies, and the values read from them."""
