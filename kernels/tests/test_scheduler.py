"""The scheduler's compile-time asserts: breaking the contract does not compile, and says why."""

from __future__ import annotations

import subprocess

import pytest

from samebits_kernels.jit import build, toolchain

pytestmark = pytest.mark.skipif(toolchain.missing() is not None, reason=str(toolchain.missing()))
HEADER = build.CSRC / "scheduler" / "tile_scheduler.h"
PINNED = "splits(int64_t /*m*/, int64_t /*n*/, int64_t /*blocks*/) { return 1; }"
BROKEN = {
    "split by M": (
        PINNED,
        "splits(int64_t m, int64_t, int64_t) { return m > 8 ? 1 : 2; }",
        "may not be split by M",
    ),
    "split one M only": (PINNED, "splits(int64_t m, int64_t, int64_t) { return m == 31 ? 2 : 1; }", "split by M"),
    "another tree": (PINNED, "splits(int64_t, int64_t, int64_t) { return 2; }", "change contract"),
    "free mode pinned": ("return s > 1 ? s : 1;", "return 1;", "is the control"),
}


def compile_header(tmp_path, text):
    (tmp_path / "tile_scheduler.h").write_text(text)
    unit = tmp_path / "unit.cpp"
    unit.write_text('#include "tile_scheduler.h"\n')
    command = [toolchain.host().cxx, "-std=c++17", "-fsyntax-only", str(unit)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_header_compiles_alone(tmp_path):
    assert compile_header(tmp_path, HEADER.read_text()).returncode == 0


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_schedule_does_not_compile(tmp_path, case):
    before, after, message = BROKEN[case]
    text = HEADER.read_text()
    assert before in text
    done = compile_header(tmp_path, text.replace(before, after))
    assert done.returncode != 0
    assert message in done.stderr
