"""The memory floor's watchdog: a sampler process of its own, and who looks after it."""
