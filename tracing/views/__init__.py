"""What a trace looks like: each view draws the same state."""
