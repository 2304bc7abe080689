#!/bin/bash
# Prints what is staged for a commit, and what about it deserves a second look. Changes nothing.
set -u
cd "${AYE_PROJECT_DIR:-.}" || exit 1

if ! git rev-parse --git-dir >/dev/null 2>&1; then
  echo "this folder is not in a git repository"
  exit 1
fi
if git diff --cached --quiet; then
  echo "nothing is staged; changed but not staged:"
  git status --short | head -n 50
  exit 0
fi

echo "staged:"
git diff --cached --stat=100 | tail -n 60

warn() { printf 'warning: %s\n' "$1"; }
# Added lines only, with the file in front, bounded so that a huge commit stays quick.
added() {
  git diff --cached --no-color --no-ext-diff --unified=0 |
    awk '/^\+\+\+ /{file=substr($0, 7); next} /^\+/{print file ": " substr($0, 2)}' | head -n 20000
}

added | grep -E ': (<{7} |={7}$|>{7} )' | cut -d: -f1 | sort -u | head -n 10 |
  while read -r file; do warn "conflict marker in $file"; done

added | grep -E '(-----BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{20,}|xox[baprs]-[A-Za-z0-9-]{10,})' |
  cut -d: -f1 | sort -u | head -n 10 |
  while read -r file; do warn "something like a secret in $file"; done

added | grep -E '(console\.log\(|dbg!\(|debugger;|binding\.pry|breakpoint\(\)|TODO: remove)' | cut -d: -f1 | sort -u | head -n 10 |
  while read -r file; do warn "left-over debugging in $file"; done

git diff --cached --name-only -z --diff-filter=AM | while IFS= read -r -d '' file; do
  size=$(git cat-file -s ":$file" 2>/dev/null || echo 0)
  if [ "$size" -gt 1000000 ]; then warn "$file has $size bytes"; fi
  case "$file" in
    *.env | .env | *.pem | *.key | *id_rsa* | *id_ed25519*) warn "$file is a kind of file that often holds secrets" ;;
  esac
done

others=$(git status --short | grep -c -v '^[MADRC] ')
if [ "$others" -gt 0 ]; then echo "$others other changed or untracked paths are not staged"; fi
exit 0
