"""What did they mean?"""

from __future__ import annotations

from collections.abc import Collection


def nearest(word: str, options: Collection[str]) -> str | None:
    """The option that looks most like `word`, None when none looks like it."""
    import difflib  # 2 ms that only a mistake needs

    close = difflib.get_close_matches(word[:64], options, 1) if options else []
    return close[0] if close else None
