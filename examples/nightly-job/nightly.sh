#!/bin/sh
# Runs the agent once. Prints the answer, or what a person has to do; exits as the run did.
cd "$(dirname "$0")" || exit 1
mkdir -p reports
trouble=$(mktemp) || exit 1
trap 'rm -f "$trouble"' EXIT

answer=$(deep-agent-mcp run "Report on the logs." --agent nightly.toml \
    --max-cost 0.50 --max-seconds 900 --approve stop --quiet 2>"$trouble")
code=$?
case $code in
0) echo "$answer" ;;
3) echo "The nightly report waits for an approval." && cat "$trouble" ;;
4) echo "The nightly report reached its limit." && cat "$trouble" ;;
*) echo "The nightly report failed." && cat "$trouble" ;;
esac
exit $code
