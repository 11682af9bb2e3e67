#!/usr/bin/env bash
# Runs a command again if, and only if, it exits with 3: the machine failed, not a kernel. Never a 1: a run that
# differs and then agrees has found what it was looking for. RETRIES (2) and RETRY_DELAY (10 s) may be set.
set -uo pipefail
retries=${RETRIES:-2}
for ((attempt = 0; ; attempt++)); do
  "$@"
  code=$?
  if ((code != 3 || attempt >= retries)); then
    exit "$code"
  fi
  echo "infrastructure (exit 3): retry $((attempt + 1)) of $retries" >&2
  sleep "${RETRY_DELAY:-10}"
done
