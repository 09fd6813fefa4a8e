"""Keeps the models' logs within their bounds while nobody gives a command."""

from __future__ import annotations

import logging
from contextlib import aclosing

from trio_util import periodic

from lumbridge_compute.effects import Effects
from lumbridge_compute.errors import OperatorError
from lumbridge_compute.journal import Journal

PERIOD_S = 30.0
_log = logging.getLogger(__name__)


async def keep_logs(effects: Effects) -> None:
    """Trim the log of each recorded model now and then, until cancelled.

    A disk that takes no writes is said once, and again when it has taken some in between.
    """
    said: str | None = None
    async with aclosing(periodic(PERIOD_S)) as ticks:
        async for _ in ticks:
            trouble = await _trim(effects)
            if trouble is not None and trouble != said:
                _log.warning("cannot keep the logs within bounds cause=%r", trouble)
            said = trouble


async def _trim(effects: Effects) -> str | None:
    try:
        state = await Journal(effects).load()
        for name in state.processes:
            await effects.trim_log(name)
    except (OSError, OperatorError) as error:
        return str(error)
    return None
