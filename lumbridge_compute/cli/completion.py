"""Shell completion: the scripts, and the hidden command that they call back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lumbridge_compute.cli.commands import (
    COMMANDS,
    COMMON,
    command_of,
    plain_words,
    takes_value,
)
from lumbridge_compute.cli.streams import Stream
from lumbridge_compute.errors import Exit

if TYPE_CHECKING:
    from lumbridge_compute.cli.call import Call
    from lumbridge_compute.core.registry import Registry

_BASH = r"""# bash completion for lumbridge-compute
# source <(lumbridge-compute completion bash)
_lumbridge_compute() {
    local IFS=$'\n'
    mapfile -t COMPREPLY < <(
        "$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null
    )
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi
}
complete -o default -F _lumbridge_compute lumbridge-compute
"""

_ZSH = r"""#compdef lumbridge-compute
# source <(lumbridge-compute completion zsh), after compinit
_lumbridge_compute() {
    local -a candidates
    candidates=(${(f)"$(${words[1]} __complete "${(@)words[2,$CURRENT]}" 2>/dev/null)"})
    if (( ${#candidates} )); then
        compadd -S '' -- ${(M)candidates:#*=}
        compadd -- ${candidates:#*=}
    else
        _files
    fi
}
compdef _lumbridge_compute lumbridge-compute
"""

_FISH = r"""# fish completion for lumbridge-compute
# lumbridge-compute completion fish | source
function __lumbridge_compute_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l program $words[1]
    command $program __complete $words[2..-1] 2>/dev/null
end
complete -c lumbridge-compute -f -a '(__lumbridge_compute_complete)'
complete -c lumbridge-compute -l root -r -F
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def run_completion(call: Call) -> int:
    """The script for one shell; it needs no node."""
    script = SCRIPTS[call.options.name]
    if call.json:
        call.print_document({"shell": call.options.name, "script": script})
    else:
        call.out.write(script)
    return Exit.DONE


def complete(words: Sequence[str], environ: Mapping[str, str], out: Stream) -> int:
    """One candidate a line for the last of `words`; always 0, nothing where nothing is known."""
    try:
        word = words[-1] if words else ""
        found = candidates(_joined(words[:-1]), word, environ)
        out.write_lines(each for each in found if each.startswith(word))
    except Exception:  # noqa: BLE001, S110 - a person who presses Tab wants no error
        pass
    return 0


def candidates(before: Sequence[str], word: str, environ: Mapping[str, str]) -> Iterable[str]:
    """What may stand in the place of `word` after the words `before`."""
    if before and takes_value(before[-1]):
        if before[-1] != "--pid":
            return ()
        return [f"{name}=" for name in _node(before, environ).declared_models()]
    name, arguments = command_of(plain_words(before))
    command = COMMANDS.get(name)
    if word.startswith("-"):
        options = (*COMMON, *(command.options if command is not None else ()))
        return [*(option.names[-1] for option in options), "--help"]
    if command is not None:
        return () if arguments else _arguments(command.takes, _node(before, environ))
    prefix = f"{name} " if name else ""
    following = [each.removeprefix(prefix) for each in COMMANDS if each.startswith(prefix)]
    return dict.fromkeys(each.split(" ")[0] for each in following)


def _arguments(kind: str | None, node: _Names) -> Iterable[str]:
    match kind:
        case "scene":
            return node.scenes()
        case "record":
            return node.recorded_models()
        case "model":
            return dict.fromkeys([*node.declared_models(), *node.recorded_models()])
        case "shell":
            return SCRIPTS
        case _:
            return ()


def _joined(words: Sequence[str]) -> list[str]:
    """bash gives `--root=DIR` as three words."""
    joined: list[str] = []
    for word in words:
        if joined and (word == "=" or joined[-1].endswith("=")):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _node(words: Sequence[str], environ: Mapping[str, str]) -> _Names:
    given: str | None = None
    for index, word in enumerate(words):
        if word.startswith("--root="):
            given = word.removeprefix("--root=")
        elif word == "--root" and index + 1 < len(words):
            given = words[index + 1]
    # The shell expands a tilde only when it runs the command.
    return _Names(os.path.expanduser(given) if given is not None else None, environ)


class _Names:
    """The names of a node's Scenes and models; looked up only when asked for."""

    def __init__(self, given: str | None, environ: Mapping[str, str]) -> None:
        self._given = given
        self._environ = environ

    def scenes(self) -> list[str]:
        return [*self._registry().scenes]

    def declared_models(self) -> list[str]:
        return [*self._registry().models]

    def recorded_models(self) -> list[str]:
        from lumbridge_compute.cli.node import state_of

        return [*state_of(self._root()).processes]

    def _registry(self) -> Registry:
        from lumbridge_compute.cli.node import registry_of

        return registry_of(self._root())

    def _root(self) -> str:
        from lumbridge_compute.cli.call import resolve_root

        return resolve_root(self._given, self._environ)
