#!/bin/sh
# Installs aye for the user who runs it: sh install.sh [--to FOLDER] [--newest] [BASE]
#
# BASE is the address or the folder in which the archives and SHA256SUMS lie; without it, the folder of this file.
# The program goes to FOLDER (~/.local/bin), its manual page and completions below ~/.local/share. Nothing is replaced
# before the sum was checked. --newest prints the version that is there, and installs nothing.
set -eu

fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

to=
base=
prints_version=
while [ $# -gt 0 ]; do
    case $1 in
    --to)
        [ $# -gt 1 ] || fail '--to needs a folder'
        to=$2
        shift 2
        ;;
    --newest)
        prints_version=yes
        shift
        ;;
    -h | --help)
        sed -n '2,6s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    -*) fail "unknown option $1; sh install.sh [--to FOLDER] [--newest] [BASE]" ;;
    *)
        [ -z "$base" ] || fail "two places to install from: $base and $1"
        base=$1
        shift
        ;;
    esac
done
[ -n "${HOME:-}" ] || fail 'HOME is not set'
to=${to:-$HOME/.local/bin}
share=$HOME/.local/share
base=${base:-$(dirname -- "$0")}

work=$(mktemp -d)
new=
trap 'rm -rf "$work" ${new:+"$new"}' EXIT

# fetch NAME: puts a file of BASE into the work folder.
fetch() {
    case $base in
    https://* | http://127.0.0.1[:/]* | http://localhost[:/]*)
        if command -v curl >/dev/null 2>&1; then
            curl -fsSL --retry 2 -o "$work/$1" "$base/$1"
        elif command -v wget >/dev/null 2>&1; then
            wget -qO "$work/$1" "$base/$1"
        else
            fail 'needs curl or wget'
        fi || fail "$base/$1 cannot be fetched"
        ;;
    http://*) fail "$base is not encrypted; use https" ;;
    *) cp -- "$base/$1" "$work/$1" 2>/dev/null || fail "$base has no $1; name the address or folder of the packages" ;;
    esac
}

machine=$(uname -m)
case $machine in
arm64) machine=aarch64 ;;
amd64) machine=x86_64 ;;
esac
case $(uname -s) in
Linux)
    # The program for glibc needs 2.28; the static one needs no libc at all.
    libc=musl
    version=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    if [ -n "$version" ]; then
        # shellcheck disable=SC2086
        set -- $version
        if [ "$1" -gt 2 ] || [ "$2" -ge 28 ]; then libc=gnu; fi
    fi
    targets="$machine-unknown-linux-$libc $machine-unknown-linux-musl"
    ;;
Darwin) targets="$machine-apple-darwin" ;;
*) fail "there is no package for $(uname -s)" ;;
esac

fetch SHA256SUMS
name=
for target in $targets; do
    name=$(sed -n "s/^[0-9a-f]\{64\}  \(aye-[0-9][A-Za-z0-9.+-]*-$target\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS" | head -n 1)
    [ -z "$name" ] || break
done
[ -n "$name" ] || fail "$base has no package for this machine ($targets)"
if [ -n "$prints_version" ]; then
    version=${name#aye-}
    printf '%s\n' "${version%-"$target".tar.gz}"
    exit 0
fi
fetch "$name"

sum=$(sed -n "s/^\([0-9a-f]\{64\}\)  $name\$/\1/p" "$work/SHA256SUMS")
if command -v sha256sum >/dev/null 2>&1; then
    found=$(sha256sum <"$work/$name")
else
    found=$(shasum -a 256 <"$work/$name")
fi
[ "${found%% *}" = "$sum" ] || fail "$name is damaged: its SHA-256 is ${found%% *}, SHA256SUMS says $sum; nothing was installed"

tar -xzf "$work/$name" -C "$work"
from=$work/${name%.tar.gz}
mkdir -p "$to"
# Beside its place first, so that the program is replaced in one step even while it runs.
new=$to/.aye.new.$$
cp "$from/bin/aye" "$new"
chmod 755 "$new"
"$new" --version >/dev/null || fail "the program of $name does not start on this machine; nothing was replaced"
mv -f "$new" "$to/aye"
new=

page=$share/man/man1/aye.1
bash=$share/bash-completion/completions/aye
fish=$share/fish/vendor_completions.d/aye.fish
zsh=$share/zsh/site-functions/_aye
put() {
    mkdir -p "${2%/*}"
    cp "$from/share/$1" "$2"
}
put man/man1/aye.1 "$page"
put completions/aye.bash "$bash"
put completions/aye.fish "$fish"
put completions/_aye "$zsh"

printf 'Installed %s as %s\n' "$("$to/aye" --version)" "$to/aye"
case :$PATH: in
*:"$to":*) ;;
*) printf "%s is not in PATH; add it: export PATH=\"%s:\$PATH\"\n" "$to" "$to" ;;
esac
printf 'To remove it: rm "%s" "%s" "%s" "%s" "%s"\n' "$to/aye" "$page" "$bash" "$fish" "$zsh"
