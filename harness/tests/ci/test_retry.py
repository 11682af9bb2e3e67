"""Exit code 3 may be retried, 1 never."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import samebits

SCRIPT = Path(samebits.__file__).parents[2] / "ci" / "retry_infrastructure.sh"


@pytest.fixture
def retry(tmp_path):
    """Runs a command that exits with these codes in turn, the last one for good: (exit code, how often it ran)."""

    def run(*codes, **env):
        fake = tmp_path / "command.sh"
        fake.write_text(
            f"#!/usr/bin/env bash\ncd '{tmp_path}'\necho x >> runs\nn=$(wc -l < runs)\n"
            f"codes=({' '.join(map(str, codes))})\nlast=$(( ${{#codes[@]}} < n ? ${{#codes[@]}} : n ))\n"
            'exit "${codes[last - 1]}"\n'
        )
        fake.chmod(0o755)
        done = subprocess.run(
            [SCRIPT, fake, "argument with spaces"],
            env={"PATH": "/usr/bin:/bin", "RETRY_DELAY": "0", **env}, check=False, capture_output=True,
        )  # fmt: skip
        return done.returncode, len((tmp_path / "runs").read_text().splitlines())

    return run


@pytest.mark.parametrize("code", [0, 1, 2, 5, 139])
def test_nothing_else_is_retried(retry, code):
    assert retry(code) == (code, 1)


def test_infrastructure_is_retried_until_it_works(retry):
    assert retry(3, 0) == (0, 2)


def test_a_divergence_behind_an_infrastructure_failure_stands(retry):
    assert retry(3, 1, 0) == (1, 2)


def test_infrastructure_that_stays_broken_is_told(retry):
    assert retry(3) == (3, 3)
    assert retry(3, RETRIES="0")[0] == 3
