#!/bin/sh
# A tool server in raw JSON lines, well-behaved or not.
#   $1  a file with the JSON list of its tools; beside it, FILE.log says what it was asked
#   $2  how it behaves: plain, silent (never answers), dead (ends at once), storm (3,000 changed lists), sampling,
#       empty (answers methods that it does not know with {}), exits (ends at server/discover), mute (ignores it),
#       chatty (writes lines of a log to its output),
#       discovers (knows the revision without a handshake, and ends at initialize)
tools=$1
mode=${2:-plain}
say() { [ "$mode" = chatty ] && echo "INFO [server] answering"; printf '%s\n' "$1"; }
result() { say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}"; }
text() { result "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]}"; }
note() { printf '%s\n' "$1" >> "$tools.log"; }
# Asks the person: $1 is the number of the question.
ask() {
  say "{\"jsonrpc\":\"2.0\",\"id\":\"e$1\",\"method\":\"elicitation/create\",\"params\":{\"mode\":\"form\",\"message\":\"Which shelf $1?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"shelf\":{\"type\":\"string\",\"title\":\"Shelf\",\"enum\":[\"top\",\"low\"]},\"count\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9},\"gift\":{\"type\":\"boolean\"}},\"required\":[\"shelf\"]}}}"
}
note "started $$"
echo "the server speaks on stderr" >&2
[ "$mode" = dead ] && { echo "no database" >&2; exit 3; }
while IFS= read -r line; do
  [ "$mode" = silent ] && continue
  id=${line#*\"id\":}
  id=${id%%[,\}]*}
  case $line in
  *'"method":"server/discover"'*)
    note discover
    [ "$mode" = exits ] && { echo "expected initialize" >&2; exit 1; }
    [ "$mode" = mute ] && continue
    if [ "$mode" = discovers ]; then
      result '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new","version":"1"}}}'
      continue
    fi
    if [ "$mode" = empty ]; then result '{}'; continue; fi
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"unknown method\"}}" ;;
  *'"method":"initialize"'*)
    note "initialize $line"
    [ "$mode" = discovers ] && exit 1
    result '{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{},"prompts":{}},"serverInfo":{"name":"sh","version":"1"},"instructions":"be careful"}' ;;
  *'"method":"notifications/initialized"'*)
    if [ "$mode" = storm ]; then
      n=0
      while [ $n -lt 3000 ]; do
        say '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
        n=$((n + 1))
      done
    elif [ "$mode" = sampling ]; then
      n=0
      while [ $n -lt 1000 ]; do
        say "{\"jsonrpc\":\"2.0\",\"id\":\"s$n\",\"method\":\"sampling/createMessage\",\"params\":{\"messages\":[],\"maxTokens\":9}}"
        n=$((n + 1))
      done
    fi ;;
  *'"method":"tools/list"'*)
    note list
    result "{\"tools\":$(cat "$tools")}" ;;
  *'"method":"prompts/list"'*)
    result '{"prompts":[{"name":"greet","description":"says hello","arguments":[{"name":"who","required":true},{"name":"how"}]}]}' ;;
  *'"method":"prompts/get"'*)
    note "$line"
    result '{"messages":[{"role":"user","content":{"type":"text","text":"Please greet."}}]}' ;;
  *'"method":"resources/list"'*)
    result '{"resources":[{"uri":"note://1","name":"first","description":"a note"}]}' ;;
  *'"method":"resources/read"'*)
    result '{"contents":[{"uri":"note://1","text":"the note"}]}' ;;
  *'"method":"notifications/cancelled"'*) note cancelled ;;
  *'"id":"e'*)
    note "answer $line"
    answers=$((answers + 1))
    id=$asking
    case $asked in
    ask) text "thank you" ;;
    again) if [ $answers -lt 15 ]; then ask $answers; else text "asked enough"; fi ;;
    flood) [ $answers -eq 1000 ] && text "asked enough" ;;
    esac ;;
  *'"method":"tools/call"'*)
    note "$line"
    case $line in
    *'"name":"hang"'*) ;;
    *'"name":"ask"'*) asking=$id asked=ask answers=0; ask 1 ;;
    *'"name":"again"'*) asking=$id asked=again answers=0; ask 0 ;;
    *'"name":"askflood"'*)
      asking=$id asked=flood answers=0 n=0
      while [ $n -lt 1000 ]; do ask $n; n=$((n + 1)); done ;;
    *'"name":"crash"'*) echo "out of memory" >&2; exit 7 ;;
    *'"name":"lie"'*) result '{"tools":3}' ;;
    *'"name":"refuse"'*) say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32602,\"message\":\"not with me\"}}" ;;
    *'"name":"wrong"'*) result '{"content":[{"type":"text","text":"it went wrong"}],"isError":true}' ;;
    *'"name":"flood"'*)
      printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' "$id"
      head -c 20000000 /dev/zero | tr '\0' x
      printf '"}]}}\n' ;;
    *'"name":"change"'*)
      printf '%s' '[{"name":"echo","description":"now it says something else","inputSchema":{"type":"object"}}]' > "$tools"
      say '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
      text changed ;;
    *'"name":"slow"'*)
      token=${line#*\"progressToken\":}
      token=${token%%[,\}]*}
      say "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":$token,\"progress\":1,\"total\":4,\"message\":\"a quarter\"}}"
      text slowly ;;
    *'"name":"shot"'*)
      result "{\"content\":[{\"type\":\"text\",\"text\":\"a shot\"},{\"type\":\"image\",\"mimeType\":\"image/png\",\"data\":\"$(cat "$tools.shot")\"}]}" ;;
    *'"name":"env"'*) text "$(env | cut -d= -f1 | sort | tr '\n' ' ')" ;;
    *) text "it was called" ;;
    esac ;;
  esac
done
note "input ended"
