#!/usr/bin/env bash
# Every night, on each card: all suites with more batch sizes and more time. Suites skip what the card cannot run, with
# a reason, so one script serves H200, B200 and RTX Blackwell. Evidence goes to $EVIDENCE, whatever happens.
set -euo pipefail
cd "$(dirname "$0")/.."
evidence=${EVIDENCE:-evidence}
mkdir -p "$evidence"
export CI=true SAMEBITS_PROFILE=nightly PYTHONUNBUFFERED=1

make .venv
.venv/bin/samebits doctor | tee "$evidence/doctor.txt"
.venv/bin/samebits-kernels build

code=0
ci/retry_infrastructure.sh \
  .venv/bin/samebits run --max-batch "${MAX_BATCH:-4096}" --budget 60 --deadline 1800 --output "$evidence" || code=$?
.venv/bin/pytest --junitxml="$evidence/junit.xml" || code=$((code ? code : $?))
exit "$code"
