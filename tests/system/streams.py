"""A streamed answer as a client at the gateway sees it."""

from __future__ import annotations

import json
import re

_HEAD = b"Host: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
BULK = b"GET /v1/models HTTP/1.1\r\n" + _HEAD % 0


def chat(tokens: int) -> bytes:
    """The question whose answer is a stream of so many tokens."""
    body = json.dumps({"stream": True, "messages": [], "max_tokens": tokens}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\n" + _HEAD % len(body) + body


def is_whole(data: bytes) -> bool:
    """True when nothing of the answer is missing."""
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    if length is not None:
        return len(body) == int(length[1])
    return b"data: [DONE]" in body and body.endswith(b"0\r\n\r\n")


def models_in(data: bytes) -> set[bytes]:
    """The names that the answer gives for the model that made it."""
    return set(re.findall(rb'"model": "([^"]*)"', data))
