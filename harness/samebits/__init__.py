"""Same bits, whatever the batch."""
