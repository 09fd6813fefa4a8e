"""Clients of a language model: `curl -N`, and the `openai` package."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.system.node import until

BOUND_S = 60
ENDLESS = 100_000
"""More tokens than a test waits for; at some thousand a second."""

_OPENAI = """
import openai, sys
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
question = [{"role": "user", "content": "Hello?"}]
for chunk in client.chat.completions.create(
    model=sys.argv[2], messages=question, stream=True, max_tokens=int(sys.argv[3])
):
    print(f'"model":"{chunk.model}"', chunk.choices[0].delta.content or "", flush=True)
"""


@dataclass
class Stream:
    """One stream of tokens under way; what comes is kept in `file`."""

    process: subprocess.Popen[bytes]
    file: Path

    def models(self) -> set[str]:
        """Who has spoken so far."""
        return set(re.findall(r'"model":"([^"]+)"', self.file.read_text(errors="replace")))

    def speaks(self) -> bool:
        assert self.process.poll() is None, self.file.read_text(errors="replace")
        return bool(self.models())

    def until_it_speaks(self) -> None:
        until(self.speaks, "a token has come", BOUND_S)

    def ended(self) -> int:
        """The client's exit code, once it has ended by itself."""
        return self.process.wait(BOUND_S)


@contextmanager
def curl(port: int, tokens: int, folder: Path, model: str = "any") -> Iterator[Stream]:
    """`curl -N` at the chat completions of `port`."""
    question = [{"role": "user", "content": "Hello?"}]
    body = {"model": model, "messages": question, "stream": True, "max_tokens": tokens}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    with _client(["curl", "-sSN", "--json", json.dumps(body), url], folder) as stream:
        yield stream


@contextmanager
def openai(python: Path, port: int, tokens: int, folder: Path, model: str) -> Iterator[Stream]:
    """The `openai` package of the environment of `python`, streaming from `port`."""
    command = [str(python), "-c", _OPENAI, f"http://127.0.0.1:{port}", model, str(tokens)]
    with _client(command, folder) as stream:
        yield stream


@contextmanager
def _client(command: list[str], folder: Path) -> Iterator[Stream]:
    file = folder / f"client-{len(list(folder.glob('client-*')))}.out"
    with file.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        yield Stream(process, file)
    finally:
        process.kill()
        process.wait()
