"""The machine, one outside thing a module."""
