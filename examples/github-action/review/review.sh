#!/bin/sh
# usage: review.sh CHECKOUT DIFF
# Writes review.jsonl, the events of the run, and review.md, the comment. Exits as the run did.
set -eu
here=$(dirname "$0")
most=200000

{
    echo "Review this change."
    if [ "$(wc -c <"$2")" -gt $most ]; then
        echo "It is too long to show: only its first $most bytes follow. Say so in the summary."
    fi
    head -c $most "$2"
} | deep-agent-mcp run - --agent "$here/reviewer.toml" --root "$1" \
    --output-schema "$here/verdict.json" --approve never --max-cost 1 --max-seconds 900 \
    --json >review.jsonl
python "$here/comment.py" review.jsonl >review.md
