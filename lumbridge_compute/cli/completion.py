"""Shell completion: the scripts, and the hidden command that they call back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

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

COMMON_OPTIONS = ("--root", "--verbose", "--quiet", "--json", "--help")
VALUED_OPTIONS = ("--root", "--pid", "--gateway", "--lines", "-n")
COMMAND_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "status": ("--watch", "--check"),
    "scene list": (),
    "scene show": (),
    "scene adopt": ("--pid",),
    "scene activate": ("--dry-run", "--wait"),
    "scene resume": ("--force", "--dry-run", "--wait"),
    "scene deactivate": ("--dry-run", "--wait"),
    "scene forget": (),
    "check": (),
    "schema": (),
    "logs": ("--follow", "--lines"),
    "history": ("--lines",),
    "verify": ("--gateway",),
    "completion": (),
}
_TAKES_SCENE = ("scene show", "scene adopt", "scene activate")


def run_completion(call: Call) -> int:
    """The script for one shell; it needs no node."""
    script = SCRIPTS[call.options.shell]
    if call.json:
        call.print_document({"shell": call.options.shell, "script": script})
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
    if before and before[-1] in VALUED_OPTIONS:
        if before[-1] != "--pid":
            return ()
        return [f"{name}=" for name in _node(before, environ).declared_models()]
    plain = _without_options(before)
    command, arguments = _command(plain)
    if word.startswith("-"):
        return [*COMMON_OPTIONS, *COMMAND_OPTIONS.get(command, ())]
    if command in COMMAND_OPTIONS:
        return () if arguments else _arguments(command, _node(before, environ))
    depth = len(plain)
    prefix = f"{command} " if command else ""
    following = [each for each in COMMAND_OPTIONS if each.startswith(prefix)]
    return list(dict.fromkeys(each.split(" ")[depth] for each in following))


def _arguments(command: str, node: _Names) -> Iterable[str]:
    if command in _TAKES_SCENE:
        return node.scenes()
    if command == "scene forget":
        return node.recorded_models()
    if command == "logs":
        return dict.fromkeys([*node.declared_models(), *node.recorded_models()])
    return SCRIPTS if command == "completion" else ()


def _command(plain: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command that `plain` begins with ("scene" alone begins one), and the rest."""
    count = 2 if plain[:1] == ["scene"] else 1
    return " ".join(plain[:count]), plain[count:]


def _without_options(words: Sequence[str]) -> list[str]:
    plain: list[str] = []
    for index, word in enumerate(words):
        is_value = index > 0 and words[index - 1] in VALUED_OPTIONS
        if not word.startswith("-") and not is_value:
            plain.append(word)
    return plain


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
    """The names of a node's Scenes and models; none where it can't be read."""

    def __init__(self, given: str | None, environ: Mapping[str, str]) -> None:
        from lumbridge_compute.cli.call import resolve_root

        self._root = resolve_root(given, environ)

    def scenes(self) -> list[str]:
        return [*self._registry().scenes]

    def declared_models(self) -> list[str]:
        return [*self._registry().models]

    def recorded_models(self) -> list[str]:
        from lumbridge_compute.cli.node import state_of

        return [*state_of(self._root).processes]

    def _registry(self) -> Registry:
        from lumbridge_compute.cli.node import registry_of

        return registry_of(self._root)
