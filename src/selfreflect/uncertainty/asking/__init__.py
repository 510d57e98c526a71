"""Inquiries to models about answers, stored responses, and parsed values."""
