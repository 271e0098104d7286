#!/bin/sh
# Print the answer's chunks as they arrive: sh ask.sh http://127.0.0.1:8000/v1 "How many days of leave?"
question=$(printf %s "$2" | tr '[:cntrl:]' ' ' | sed 's/[\\"]/\\&/g') # escaped for JSON
printf '{"model": "wenmai", "stream": true, "messages": [{"role": "user", "content": "%s"}]}' "$question" |
  curl --silent --show-error --fail-with-body --no-buffer "$1/chat/completions" \
    -H "Authorization: Bearer ${WENMAI_KEY:-none}" -H "Content-Type: application/json" --data-binary @-
