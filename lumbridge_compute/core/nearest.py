"""What did they mean?"""

from __future__ import annotations

from collections.abc import Collection


def nearest(word: str, options: Collection[str]) -> str | None:
    """The option that looks most like `word`, None when none looks like it.

    One of the very letters of `word` comes first: two fingers out of step are the commonest slip.
    """
    import difflib  # 2 ms that only a mistake needs

    close = difflib.get_close_matches(word[:64], options, 5) if options else []
    letters = sorted(word)
    return max(close, key=lambda option: sorted(option) == letters, default=None)
