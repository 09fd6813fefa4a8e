"""Lumbridge Compute: switch a machine between sets of model servers, and prove what answers."""

__version__ = "0.1.0"
