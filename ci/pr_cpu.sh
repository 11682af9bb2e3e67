#!/usr/bin/env bash
# Pull requests, no GPU. PYTEST=8.4 or 9.2 chooses the pytest (default: the pinned one); evidence goes to $EVIDENCE.
set -euo pipefail
cd "$(dirname "$0")/.."
evidence=${EVIDENCE:-evidence}
mkdir -p "$evidence"
export CI=true PYTHONUNBUFFERED=1

make .venv
if [[ -n ${PYTEST:-} ]]; then
  .venv/bin/python -m pip install --quiet "pytest==$PYTEST.*"
fi
.venv/bin/pytest --version
make lint
make docs
ci/retry_infrastructure.sh .venv/bin/samebits run --budget 2 --output "$evidence"
make test ARGS="--junitxml=$evidence/junit.xml"
