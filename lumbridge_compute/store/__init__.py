"""Text on disk to values, and back."""
