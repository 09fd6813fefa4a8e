"""Decisions as pure functions over values: no I/O, no clock, no trio, no logging."""
