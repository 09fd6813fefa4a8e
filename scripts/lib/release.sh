# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # the scripts use what is set here; venv.sh sets `checkout`
# Sourced after venv.sh, not run.  Releases under a prefix, and the unit that runs the current one:
#
#   PREFIX/releases/VERSION+REVISION/  a virtual environment; release.txt in it: it is complete
#   PREFIX/current, PREFIX/previous    links to one each; `current` is what runs
#   PREFIX/pending                     a switch whose proof has not ended: the release to go back to
#   PREFIX/before.json                 the node as it was before that switch
#   PREFIX/lock                        one install, upgrade or uninstall at a time
#
# Every change is made beside and then renamed, so that a script that is killed leaves the old or
# the new behind, and a rest that the next run removes.

command_name=lumbridge-compute
unit=lumbridge-compute-agent.service
unit_file=/etc/systemd/system/$unit
# While a release is on trial the agent comes back whatever its exit code is: systemd keeps the
# gateways' listeners only as long as it means to start the unit again.
trial_file=/run/systemd/system/$unit.d/lumbridge-trial.conf
shipped_prefix=/opt/lumbridge-compute
prefix=''
dry_run=''
kept_releases=3

# step SENTENCE: says what is done now; in a dry run what would be, and answers with 1.
step() {
    if [[ -n $dry_run ]]; then
        tell "would $1"
        return 1
    fi
    tell "$1"
}

# A terminal that is gone must not end what goes on.
tell() {
    printf '%s\n' "$1" 2>/dev/null || true
}

# The prefix that was given, else that of the installed unit, else the usual one.
use_prefix() {
    [[ -n $prefix ]] || prefix=$(unit_prefix)
    prefix=${prefix:-$shipped_prefix}
    [[ $prefix =~ ^/[A-Za-z0-9._/+@=-]*[A-Za-z0-9]$ ]] ||
        fail "cannot use the prefix '$prefix': wanted an absolute path of plain characters"
    releases=$prefix/releases
    current=$prefix/current
    previous=$prefix/previous
    pending=$prefix/pending
    before=$prefix/before.json
}

# Takes the lock; what a killed run left unfinished is removed now and when this one ends.
open_prefix() {
    use_prefix
    [[ -z $dry_run ]] || return 0
    command -v flock >/dev/null || fail "the program flock is missing" "install util-linux"
    mkdir -p -- "$prefix" 2>/dev/null ||
        fail "cannot make $prefix: permission denied" "run this as root, or give --prefix DIR"
    [[ -w $prefix ]] || fail "cannot write to $prefix" "run this as root, or give --prefix DIR"
    exec {prefix_lock}>>"$prefix/lock"
    flock --nonblock "$prefix_lock" ||
        fail "another install, upgrade or removal in $prefix goes on" "repeat when it has ended"
    trap remove_unfinished EXIT
    remove_unfinished
}

remove_unfinished() {
    local mark
    rm -rf -- "$releases/.source"
    for mark in "$releases"/*/.unfinished; do
        [[ ! -e $mark ]] || rm -rf -- "${mark%/*}"
    done
    [[ ! -d $releases ]] || find "$releases" -mindepth 1 -maxdepth 1 -type d -empty -delete
    rm -f -- "$prefix"/.new.*
}

is_complete() {
    [[ -n $1 && -f $releases/$1/release.txt ]]
}

# name_of LINK: the release that it leads to; nothing where there is none.
name_of() {
    local target
    target=$(readlink -- "$1" 2>/dev/null) || return 0
    printf '%s\n' "${target##*/}"
}

# put_link TARGET LINK
put_link() {
    local new=${2%/*}/.new.${2##*/}
    ln -sfnT -- "$1" "$new" && mv -fT -- "$new" "$2"
}

# put_file FILE: standard input becomes its content.
put_file() {
    local new=${1%/*}/.new.${1##*/}
    cat >"$new" && chmod 644 -- "$new" && mv -fT -- "$new" "$1"
}

# git in the checkout, as its owner: the owner has the key and the settings.  Never asks anything.
checkout_git() {
    local owner as=()
    owner=$(stat -c %U -- "$checkout")
    if [[ $EUID -eq 0 && $owner != root ]]; then
        as=(runuser -u "$owner" -- env "HOME=$(getent passwd "$owner" | cut -d : -f 6)")
    fi
    "${as[@]}" env GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 \
        "GIT_SSH_COMMAND=${GIT_SSH_COMMAND:-ssh} -oBatchMode=yes" \
        git -C "$checkout" "$@" </dev/null
}

check_checkout() {
    command -v git >/dev/null || fail "the program git is missing" "install git"
    local found
    found=$(checkout_git rev-parse --show-toplevel) ||
        fail "$checkout is no git checkout: a release is made of a revision" "its message is above"
    [[ $found == "$checkout" ]] || fail "$checkout is no git checkout of its own"
    [[ -z $(checkout_git status --porcelain --untracked-files=no) ]] ||
        fail "$checkout has changes that are not committed: a release is made of a revision" \
            "git status shows them; commit them, or put them aside with git stash"
}

# release_name REVISION: its version and its short hash, as in 0.1.0+0123456789ab.
release_name() {
    local version
    if [[ -n $dry_run ]] && ! checkout_git cat-file -e "$1" 2>/dev/null; then
        printf 'VERSION+%s\n' "${1:0:12}" # not fetched, so its version is not known
        return
    fi
    version=$(checkout_git show "$1:lumbridge_compute/__init__.py" |
        sed -n 's/^__version__ = "\([0-9.]*\)"$/\1/p')
    [[ -n $version ]] || fail "revision $1 has no version that can be read"
    printf '%s+%s\n' "$version" "$(checkout_git rev-parse --short=12 "$1")"
}

# build_release REVISION NAME: complete at releases/NAME when it returns, or the script ends.
build_release() {
    local release=$releases/$2
    if is_complete "$2"; then
        tell "release $2 is built already"
        return
    fi
    step "build release $2 in $release" || return 0
    mkdir -p -- "$releases" "$releases/.source"
    mkdir -- "$release"
    : >"$release/.unfinished"
    checkout_git archive --format=tar "$1" | tar -x -C "$releases/.source" ||
        fail "cannot take revision $1 out of the checkout"
    # The version that every part of it names says which revision it is.
    sed -i "s/^__version__ = .*/__version__ = \"$2\"/" "$releases/.source/lumbridge_compute/__init__.py"
    install_release "$releases/.source" "$release"
    "$release/bin/python" -I -m compileall -q "$release"/lib/python*/site-packages/lumbridge_compute ||
        fail "cannot compile release $2" "its own message is above"
    install -D -m 644 -- "$releases/.source/units/$unit" "$release/share/$command_name/$unit"
    printf 'version %s\nrevision %s\n' "$2" "$1" >"$release/.unfinished"
    sync -f -- "$release"
    mv -T -- "$release/.unfinished" "$release/release.txt"
    rm -rf -- "$releases/.source"
}

# install_release SOURCE RELEASE: packages as pinned, the package itself not editable.  Where the
# current release has the same pins its packages are copied: then no package index is needed.
install_release() {
    local python pip
    python=$(find_python) || exit 1
    pip=("$2/bin/python" -I -m pip -qq --no-input --disable-pip-version-check install)
    pins_of "$1" "$python" >"$2/pins.txt"
    if cmp -s -- "$2/pins.txt" "$current/pins.txt"; then
        tell "copy the packages of $(name_of "$current"), whose pins are the same"
        "$python" -I -m venv --without-pip -- "$2" || fail "cannot make $2: '$python -m venv' failed"
        cp -a -- "$current/lib/." "$2/lib/" || fail "cannot copy packages to $2"
    else
        tell "install the pinned packages with Python $(python_version "$python")"
        "$python" -I -m venv -- "$2" || fail "cannot make $2: '$python -m venv' failed"
        requirements_of "$1" "$python" >"$2/requirements.txt"
        "${pip[@]}" --only-binary :all: --constraint "$1/constraints.txt" \
            --requirement "$2/requirements.txt" >&2 ||
            fail "cannot install the pinned packages: pip failed" \
                "its own message is above; run this again when the package index can be reached"
    fi
    "${pip[@]}" --no-deps --no-build-isolation "$1" >&2 ||
        fail "cannot install the package itself: pip failed" "its own message is above"
}

requirements_of() {
    "$2" -I -c 'import sys, tomllib
with open(sys.argv[1], "rb") as file:
    declared = tomllib.load(file)
for each in declared["project"]["dependencies"] + declared["build-system"]["requires"]:
    print(each)' "$1/pyproject.toml"
}

pins_of() {
    python_version "$2"
    requirements_of "$1" "$2"
    cat -- "$1/constraints.txt"
}

# release_python NAME PART...: python -m lumbridge_compute.release of that release.
release_python() {
    "$releases/$1/bin/python" -I -m lumbridge_compute.release "${@:2}" </dev/null
}

# Why this machine, or this user, has no service; nothing where there can be one.
no_service() {
    if ! command -v systemctl >/dev/null; then
        printf 'there is no systemctl\n'
    elif [[ ! -d /run/systemd/system ]]; then
        printf 'systemd does not run this machine\n'
    elif [[ $EUID -ne 0 ]]; then
        printf 'this is not root\n'
    fi
}

# unit_value KEY: what the installed unit says, without KEY=.
unit_value() {
    [[ ! -r $unit_file ]] || sed -n "s|^$1=||p" -- "$unit_file"
}

unit_prefix() {
    unit_value ExecStart | sed -n 's|/current/bin/lumbridge-compute agent.*||p'
}

# Whether the installed unit starts what is under this prefix.
owns_unit() {
    [[ $(unit_prefix) == "$prefix" ]]
}

# The words after `agent` in the installed unit.
agent_words() {
    unit_value ExecStart | sed -n 's|^.*/lumbridge-compute agent *||p'
}

# render_unit FILE ROOT WORDS: the unit for this prefix; the root is declared in it, nowhere else.
render_unit() {
    sed -e "s|^Environment=LUMBRIDGE_COMPUTE_ROOT=.*|Environment=LUMBRIDGE_COMPUTE_ROOT=$2|" \
        -e "s|^ExecStart=$shipped_prefix/\(.*\)|ExecStart=$prefix/\1${3:+ $3}|" -- "$1"
}

# put_unit FILE ROOT WORDS: sets unit_changed; systemd has read it when it returns.
put_unit() {
    local new
    unit_changed=''
    new=$(render_unit "$@") || return
    if [[ $new != "$(cat -- "$unit_file" 2>/dev/null)" ]]; then
        unit_changed=yes
        printf '%s\n' "$new" | put_file "$unit_file" || return
    fi
    # A run that was killed before this line is made good by the next.
    if [[ -n $unit_changed || $(systemctl show --value --property=NeedDaemonReload "$unit") == yes ]]; then
        systemctl daemon-reload || return
    fi
}

is_running() {
    [[ -z $(no_service) ]] && owns_unit && systemctl is-active --quiet "$unit"
}
