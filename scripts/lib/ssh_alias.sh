# shellcheck shell=bash
# Sourced, not run, after venv.sh.  The files of a host alias in ~/.ssh: its key pair, its pinned host
# keys, its block in the config.
#
# Everything new is written beside its place and renamed into it; `temporary` names what is removed
# when the script ends.

# What the caller's options set.
alias=lumbridge-compute-deploy
host=''
port=2223
user=git
host_key_file=''
fingerprint=''

# How git and ssh are called so that they read the config; see use_ssh_folder.
# shellcheck disable=SC2034 # the caller reads it
ssh_command=(ssh)
temporary=()

remove_temporary() {
    [[ ${#temporary[@]} -eq 0 ]] || rm -rf -- "${temporary[@]}"
}

# Sets the paths of the alias.  ssh reads the home folder of the account, whatever $HOME says; where
# they differ, `ssh_command` names the config.
use_ssh_folder() {
    local home
    [[ -n ${HOME-} && -d $HOME ]] || fail "cannot find ~/.ssh: HOME is not a folder"
    ssh_folder=$HOME/.ssh
    [[ $ssh_folder != *[\"\\$'\n']* ]] ||
        fail "cannot use $ssh_folder: a quote, a backslash or a line break is in its name"
    ssh_config=$ssh_folder/config
    key=$ssh_folder/$alias
    known_hosts=$ssh_folder/$alias.known_hosts
    home=$(getent passwd "$EUID" | cut -d : -f 6)
    # shellcheck disable=SC2034 # the caller reads it
    [[ $HOME -ef $home ]] || ssh_command=(ssh -F "$ssh_config")
}

# Makes ~/.ssh if it is missing, and keeps another run out until this one ends.
lock_ssh_folder() {
    [[ -d $ssh_folder ]] || mkdir -m 700 -- "$ssh_folder"
    [[ -O $ssh_folder ]] || fail "cannot use $ssh_folder: it belongs to another user" \
        "run this as $(stat -c %U -- "$ssh_folder")"
    exec {ssh_lock}<"$ssh_folder"
    flock --nonblock "$ssh_lock" || fail "cannot change $ssh_folder: another run is at work there"
    rm -rf -- "$ssh_folder"/.deploy-key.??????  # what a killed run left
}

# beside TARGET: prints a new file in the folder of TARGET, or of what TARGET links to.
beside() {
    local target
    target=$(readlink -m -- "$1")
    rm -f -- "$target".deploy-key.??????
    mktemp -- "$target.deploy-key.XXXXXX"
}

# put NEW TARGET: TARGET has the content of NEW, and was never seen half-written.
put() {
    local target
    target=$(readlink -m -- "$2")
    [[ ! -e $target ]] || chmod --reference="$target" -- "$1"
    if cmp --silent -- "$1" "$target"; then
        rm -- "$1"
    else
        sync -- "$1"
        mv --force --no-target-directory -- "$1" "$target"
    fi
}

# --- the key pair

# Makes the pair, or completes what is there; the private half is in place first.
make_key() {
    local made
    if [[ ! -e $key ]]; then
        made=$(mktemp --directory -- "$ssh_folder/.deploy-key.XXXXXX")
        temporary+=("$made")
        ssh-keygen -q -t ed25519 -N '' -C "$alias@$(uname -n)" -f "$made/key"
        sync -- "$made/key"
        mv --no-target-directory -- "$made/key" "$key"
    fi
    [[ -f $key && -O $key ]] || fail "cannot use $key: it is not a file of this user"
    chmod 600 -- "$key"
    made=$(beside "$key.pub")
    temporary+=("$made")
    ssh-keygen -y -P '' -f "$key" >"$made" 2>/dev/null ||
        fail "cannot use $key: it is no private key, or it has a passphrase" \
            "move it away and run this again"
    [[ $(<"$made") == ssh-ed25519\ * ]] || fail "cannot use $key: it is not an ed25519 key" \
        "move it away and run this again"
    chmod 644 -- "$made"
    put "$made" "$key.pub"
}

# --- the host keys

host_name_and_port() {
    if [[ $port == 22 ]]; then printf '%s' "$host"; else printf '[%s]:%s' "$host" "$port"; fi
}

# pin_host_keys NEW: writes the keys that are to be trusted, or ends the script.
pin_host_keys() {
    local heading
    heading="# the keys of $(host_name_and_port)"
    if [[ -n $host_key_file ]]; then
        { printf '%s\n' "$heading" && host_keys_of_file; } >"$1"
    elif [[ -z $fingerprint && -r $known_hosts && $(head -n 1 -- "$known_hosts") == "$heading" ]]; then
        cat -- "$known_hosts" >"$1"
    else
        { printf '%s\n' "$heading" && host_keys_of_scan; } >"$1"
    fi
}

# as_pinned: "HOST TYPE KEY..." or "TYPE KEY..." on standard input, "ALIAS TYPE KEY" on output.
as_pinned() {
    awk -v alias="$alias" '
        $1 ~ /^[#@]/ { next }
        $1 ~ /^(ssh|ecdsa|sk)-/ { print alias, $1, $2; next }
        $2 ~ /^(ssh|ecdsa|sk)-/ { print alias, $2, $3 }'
}

host_keys_of_file() {
    local keys name
    name=$(host_name_and_port)
    [[ -r $host_key_file ]] || fail "cannot read $host_key_file"
    # A file of known hosts has those of other hosts too.
    if grep -qE '^(ssh|ecdsa|sk)-' -- "$host_key_file"; then
        keys=$(grep -E '^(ssh|ecdsa|sk)-' -- "$host_key_file" | as_pinned) || true
    else
        keys=$(ssh-keygen -F "$name" -f "$host_key_file" 2>/dev/null | as_pinned) || true
    fi
    ssh-keygen -l -f - <<<"$keys" >/dev/null 2>&1 ||
        fail "cannot pin the host key: no public key of $name is in $host_key_file" \
            "ask the server's operator for its /etc/ssh/ssh_host_ed25519_key.pub"
    printf '%s\n' "$keys"
}

host_keys_of_scan() {
    local keys line shown=''
    keys=$(ssh-keyscan -T 10 -p "$port" -- "$host" 2>/dev/null </dev/null | as_pinned) || true
    [[ -n $keys ]] || fail "cannot reach an SSH server at $host, port $port" \
        "correct HOST or --port, or give the host key in a file: --host-key FILE"
    while IFS= read -r line; do
        shown=$(ssh-keygen -l -f - <<<"$line" | cut -d ' ' -f 2)
        if [[ $shown == "${fingerprint%=}" ]]; then
            printf '%s\n' "$line"
            return
        fi
    done <<<"$keys"
    shown=$(ssh-keygen -l -f - <<<"$keys" | awk '{ print "  " $2, $NF }')
    [[ -z $fingerprint ]] || fail "cannot pin the host key: $host, port $port, has none with
$fingerprint, but
$shown" "if the server's operator confirms one of them, name that one"
    printf 'The SSH server at %s, port %s, shows these host keys:\n%s\n' "$host" "$port" "$shown" >&2
    [[ -t 0 && -t 2 ]] || fail "cannot pin a host key that nobody has confirmed" \
        "compare with the server's own, then run this again with --fingerprint SHA256:..."
    read -rp 'Are these the keys of that server (yes/no)? ' line
    [[ $line == yes ]] || fail "the host keys were not confirmed; nothing was changed"
    printf '%s\n' "$keys"
}

# --- the block in the config

alias_block() {
    cat <<TEXT
$block_begin
Host $alias
    HostName $host
    Port $port
    User $user
    IdentityFile "${key//%/%%}"
    IdentitiesOnly yes
    IdentityAgent none
    PreferredAuthentications publickey
    BatchMode yes
    HostKeyAlias $alias
    UserKnownHostsFile "${known_hosts//%/%%}"
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    UpdateHostKeys no
    # A shared connection would be another key's.
    ControlMaster no
    ControlPath none
    ClearAllForwardings yes
    ForwardAgent no
    ConnectTimeout 10
    ServerAliveInterval 15
Match all
$block_end
TEXT
}

# write_config NEW: the config with the block at its top, since ssh takes the first value it finds.
write_config() {
    local block_begin="# >>> lumbridge-compute deploy key $alias >>>"
    local block_end="# <<< lumbridge-compute deploy key $alias <<<"
    alias_block >"$1"
    [[ -e $ssh_config ]] || return 0
    awk -v begin="$block_begin" -v end="$block_end" '
        $0 == begin { inside = NR; next }
        $0 == end && inside { inside = 0; next }
        !inside
        END { if (inside) exit 1 }' "$ssh_config" >>"$1" ||
        fail "cannot change $ssh_config: the block of '$alias' has a beginning and no end" \
            "remove it by hand, from the line '$block_begin'"
}

# check_alias CONFIG: ends the script unless ssh takes the alias as it was written.
check_alias() {
    local effective found
    effective=$(ssh -F "$1" -G "$alias" 2>&1) ||
        fail "cannot use $ssh_config: $(tail -n 1 <<<"$effective")"
    found=$(awk '$1 == "identityfile" || $1 == "certificatefile" { print substr($0, index($0, " ") + 1) }' \
        <<<"$effective")
    [[ $found == "$key" ]] ||
        fail "cannot use '$alias': ssh would offer other keys too: ${found//$'\n'/, }" \
            "in $ssh_config, take IdentityFile out of the sections that hold for every host"
    expect_of_alias identitiesonly yes
    expect_of_alias batchmode yes
    expect_of_alias stricthostkeychecking 'true|yes'
    expect_of_alias userknownhostsfile "$known_hosts"
    expect_of_alias hostkeyalias "$alias"
}

# expect_of_alias NAME VALUES
expect_of_alias() {
    local value
    value=$(awk -v name="$1" '$1 == name { print substr($0, index($0, " ") + 1) }' <<<"$effective")
    [[ "|$2|" == *"|$value|"* ]] ||
        fail "cannot use '$alias': ssh takes $1 as '$value', wanted '${2#*|}'" "run init again"
}
