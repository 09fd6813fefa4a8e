"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A machine may be busy: how long an example takes says nothing about the code.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("busy"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "busy")
