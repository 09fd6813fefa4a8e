# shellcheck shell=bash
# Sourced, not run.  Gives `checkout`, `venv`, `fail`, `venv_help` and `ensure_venv`.
#
# The file .lumbridge-setup inside the virtual environment says how far set-up came: the checksum
# of all that decides its content when it is complete, any other text when it was cut off (then it
# is built anew), and no file at all in an environment that somebody else made.

unset PYTHONHOME PYTHONPATH

checkout=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
venv=${LUMBRIDGE_COMPUTE_VENV:-$checkout/.venv}
[[ $venv == /* ]] || venv=$PWD/$venv
setup_file=$venv/.lumbridge-setup

venv_help() {
    cat <<'TEXT'

The first run makes a virtual environment from constraints.txt; later runs use it as it is.

environment:
  LUMBRIDGE_COMPUTE_PYTHON  the interpreter to use (default: the first of python3.13, python3.12,
                            python3.11 and python3 that works)
  LUMBRIDGE_COMPUTE_VENV    where the virtual environment is (default: .venv in the checkout)
TEXT
}

# fail SENTENCE [HINT]
fail() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    [[ -z ${2-} ]] || printf 'hint: %s\n' "$2" >&2
    exit 1
}

say() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
}

# Returns with a complete virtual environment at $venv, or ends the script with a sentence.
ensure_venv() {
    setup_is_complete && return
    command -v flock >/dev/null ||
        fail "cannot set up $venv: the program flock is missing" "install the package util-linux"
    local lock
    exec {lock}<"$checkout"
    flock --nonblock "$lock" || {
        say "waiting for another set-up of this checkout"
        flock "$lock"
    }
    # Whoever held the lock may have finished the same work.
    setup_is_complete || set_up
    exec {lock}<&-
}

setup_is_complete() {
    [[ -x $venv/bin/python && -r $setup_file ]] &&
        [[ $(<"$setup_file") == "$(setup_checksum)" ]] && is_chosen_python "$venv/bin/python"
}

# pyvenv.cfg names the interpreter and its version; the checkout's path is in the editable install.
setup_checksum() {
    {
        printf '%s\n' "$checkout" "$venv"
        cat -- "$venv/pyvenv.cfg" "$checkout/pyproject.toml" "$checkout/constraints.txt" \
            "$checkout/lumbridge_compute/__init__.py" "$checkout/scripts/lib/venv.sh" 2>/dev/null
    } | sha256sum | cut -d ' ' -f 1
}

is_chosen_python() {
    [[ -z ${LUMBRIDGE_COMPUTE_PYTHON-} ]] ||
        [[ $(python_version "$1") == "$(python_version "$LUMBRIDGE_COMPUTE_PYTHON")" ]]
}

python_version() {
    "$1" -I -c 'import platform; print(platform.python_version())' 2>/dev/null
}

set_up() {
    if ! venv_is_usable; then
        make_venv
    fi
    printf 'unfinished\n' >"$setup_file"
    say "installing the pinned packages into $venv"
    install_packages
    setup_checksum >"$setup_file.new"
    mv -- "$setup_file.new" "$setup_file"
}

venv_is_usable() {
    [[ -x $venv/bin/python ]] && is_new_enough "$venv/bin/python" &&
        is_chosen_python "$venv/bin/python" && "$venv/bin/python" -I -c 'import pip' 2>/dev/null &&
        { [[ ! -e $setup_file ]] || grep -qxE '[0-9a-f]{64}' -- "$setup_file"; }
}

is_new_enough() {
    "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

make_venv() {
    local python
    python=$(find_python) || exit 1
    say "making $venv with Python $(python_version "$python")"
    clear_venv
    "$python" -I -m venv -- "$venv" >&2 ||
        fail "cannot make $venv: '$python -m venv' failed" "its own message is above"
}

# Only what is a virtual environment, or the beginning of one of ours, is removed.
clear_venv() {
    if [[ -e $venv && ! -e $venv/pyvenv.cfg && ! -e $setup_file ]] &&
        [[ ! -d $venv || -n $(ls -A -- "$venv") ]]; then
        fail "cannot make $venv: something that is no virtual environment is there" \
            "move it away, or name another folder in LUMBRIDGE_COMPUTE_VENV"
    fi
    mkdir -p -- "$venv"
    printf 'unfinished\n' >"$setup_file"
    (cd -- "$venv" && find . -mindepth 1 ! -path "./${setup_file##*/}" -delete)
}

find_python() {
    local candidate without_venv='' candidates=(python3.13 python3.12 python3.11 python3)
    [[ -z ${LUMBRIDGE_COMPUTE_PYTHON-} ]] || candidates=("$LUMBRIDGE_COMPUTE_PYTHON")
    for candidate in "${candidates[@]}"; do
        # A name alone proves nothing: a pyenv shim exists for versions that are not selected.
        is_new_enough "$candidate" || continue
        if "$candidate" -I -c 'import ensurepip, venv' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
        without_venv=${without_venv:-$candidate}
    done
    [[ -z $without_venv ]] ||
        fail "cannot make a virtual environment: $without_venv has no module ensurepip" \
            "on Debian: apt-get install $(venv_package "$without_venv")"
    fail "cannot find Python 3.11 or newer: tried ${candidates[*]}" \
        "on Debian: apt-get install python3 python3-venv, or name one in LUMBRIDGE_COMPUTE_PYTHON"
}

venv_package() {
    "$1" -I -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'
}

# Everything, build tools included, is pinned and comes as a wheel: no compiler, and no build in
# an isolated environment that would look for its own tools on the network.
install_packages() {
    local pip=("$venv/bin/python" -I -m pip -qq --no-input --disable-pip-version-check)
    "${pip[@]}" install --only-binary :all: --requirement "$checkout/constraints.txt" >&2 ||
        fail "cannot install the pinned packages: pip failed" \
            "its own message is above; run this again when the package index can be reached"
    "${pip[@]}" install --no-deps --no-build-isolation --editable "$checkout" >&2 ||
        fail "cannot install the package itself: pip failed" "its own message is above"
    "${pip[@]}" check >&2 ||
        fail "cannot use $venv: the pinned versions do not fit together" \
            "correct constraints.txt to fit pyproject.toml"
}
