#!/usr/bin/env bash
# One job of the action in action.yml: starts a task, or takes an answer from a comment and resumes the run. Posts the
# question that the run stopped at, or its answer, with `gh`.
#
#   AYE_PROMPT   the task; not used where a comment answers
#   AYE_COMMENT  a comment: `/aye approve ID` or `/aye deny ID REASON`
#   AYE_NUMBER   the issue or pull request
#   AYE_ARGS     more flags, one a line
#   AYE_HOME     the folder of the store, which the next job gets back
set -euo pipefail

result=$(mktemp)
args=()
while IFS= read -r line; do
    if [ -n "$line" ]; then args+=("$line"); fi
done <<<"${AYE_ARGS:-}"

# A reason may have several lines; the first line has to be an answer.
if [ -n "${AYE_COMMENT:-}" ]; then
    if ! [[ $AYE_COMMENT =~ ^/aye[[:space:]]+(approve|deny)[[:space:]]+([A-Za-z0-9_-]+)([[:space:]]+(.*))?$ ]]; then
        echo 'The comment is no answer: /aye approve ID, or /aye deny ID REASON.'
        exit 0
    fi
    action=${BASH_REMATCH[1]} id=${BASH_REMATCH[2]} words=${BASH_REMATCH[4]:-}
    more=()
    if [ "$action" = deny ]; then more=(--reason "${words:-denied in a comment}"); fi
    if [ "$action" = approve ] && [ -n "$words" ]; then more=(--comment "$words"); fi
    set -- "$action" --resume --output-format json "${args[@]}" "${more[@]}" -- "$id"
else
    set -- -p --on-ask suspend --output-format json "${args[@]}" -- "$AYE_PROMPT"
fi
status=0
aye "$@" >"$result" || status=$?

comment=$(mktemp)
python3 - "$result" "$comment" "$status" <<'P'
import json, os, sys

result, comment, status = sys.argv[1:]
with open(result, encoding="utf-8") as file:
    text = file.read()
try:
    run = json.loads(text)
except ValueError:
    sys.exit(0)


def fenced(text):
    """A block that nothing in the text ends: the text may be the model's, or a file's."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


lines = []
for question in run.get("waiting", []):
    pending = question["ticket"]["pending"]
    asked = pending["arguments"].get("command") or json.dumps(pending["arguments"], indent=1, ensure_ascii=False)
    lines += [f"**aye asks about {question['tool']}**", "", fenced(asked), "", f"{question['why']}", ""]
    card = (os.environ.get("AYE_PUBLIC_URL") or "").rstrip("/")
    if card:
        lines += [f"[Open the card]({card}/#/card/{question['id']})", ""]
    lines += [f"Answer with a comment: `/aye approve {question['id']}` or `/aye deny {question['id']} REASON`", ""]
if not run.get("waiting"):
    lines = [run.get("response") or run.get("error") or "aye ended without an answer.", "", f"aye ended with status {status}."]
with open(comment, "w", encoding="utf-8") as file:
    file.write("\n".join(lines).strip() + "\n")
with open(os.environ.get("GITHUB_OUTPUT", os.devnull), "a", encoding="utf-8") as file:
    first = next(iter(run.get("waiting", [])), {}).get("id", "")
    file.write(f"exit={status}\nquestion={first}\nresponse={comment}\n")
P
if [ -s "$comment" ]; then
    gh issue comment "$AYE_NUMBER" --body-file "$comment"
fi
# A pending question is no failure of the job.
if [ "$status" = 3 ]; then exit 0; fi
exit "$status"
