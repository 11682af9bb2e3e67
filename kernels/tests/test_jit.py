"""The build cache: keys, locks, corrupt entries, failures that say what to do. A tiny unit stands in for csrc."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import samebits_kernels as sk
from samebits_kernels import cli
from samebits_kernels.jit import build, cache, toolchain

pytestmark = pytest.mark.skipif(toolchain.missing() is not None, reason=str(toolchain.missing()))
UNIT = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A target of one small C++ file, and a cache of its own."""
    sources = tmp_path / "csrc" / "tiny"
    sources.mkdir(parents=True)
    (sources / "unit.cpp").write_text(UNIT)
    monkeypatch.setattr(build, "CSRC", tmp_path / "csrc")
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(tmp_path / "cache"))
    return build.Target("tiny", ("tiny",), ("-O0",))


def test_second_build_is_a_hit(tiny):
    first, second = build.build(tiny), build.build(tiny)
    assert first["built"]
    assert not second["built"]
    assert first["seconds"] > 0
    assert Path(first["folder"], first["library"]).is_file()
    assert [e.key for e in cache.entries()] == [Path(first["folder"]).name]
    assert not list(cache.root().glob(".*-*")), "no staging folder is left"


@pytest.mark.parametrize("change", ["source", "new file", "flags", "compiler"])
def test_the_key_covers(tiny, change, monkeypatch):
    before = build.entry(tiny).key
    source = build.CSRC / "tiny" / "unit.cpp"
    if change == "source":
        source.write_text(UNIT + "\n")
    elif change == "new file":
        source.with_name("other.h").write_text("")
    elif change == "flags":
        tiny = build.Target("tiny", ("tiny",), ("-O1",))
    else:
        monkeypatch.setattr(toolchain, "_identify", lambda cxx: "another compiler 1.0")
    assert build.entry(tiny).key != before


@pytest.mark.parametrize("damage", ["library", "manifest", "gone"])
def test_a_corrupt_entry_is_a_miss(tiny, damage):
    first = build.build(tiny)
    folder = Path(first["folder"])
    if damage == "library":
        (folder / first["library"]).write_bytes(b"\x7fELF")
    elif damage == "manifest":
        (folder / cache.MANIFEST).write_text("{")
    else:
        (folder / first["library"]).unlink()
    again = build.build(tiny)
    assert again["built"]
    assert not build.build(tiny)["built"]


def test_a_failed_build_names_the_command_and_the_log(tiny):
    (build.CSRC / "tiny" / "unit.cpp").write_text("int answer() { return forty_two; }\n")
    with pytest.raises(sk.BuildError) as caught:
        build.build(tiny)
    text = str(caught.value)
    assert "forty_two" in text
    assert "unit.cpp" in text
    command = next(line for line in text.splitlines() if line.startswith("  command: "))
    assert " -c " in command
    log = Path(next(line for line in text.splitlines() if line.startswith("  log:")).split(":", 1)[1].strip())
    assert "forty_two" in log.read_text()
    (build.CSRC / "tiny" / "unit.cpp").write_text(UNIT)
    assert build.build(tiny)["built"]


def _build_in_child(csrc, queue):
    build.CSRC = csrc
    queue.put(build.build(build.Target("tiny", ("tiny",), ("-O0",)))["built"])


def test_two_processes_build_once(tiny):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_build_in_child, args=(build.CSRC, queue)) for _ in range(3)]
    for child in children:
        child.start()
    built = [queue.get(timeout=60) for _ in children]
    for child in children:
        child.join()
    assert sorted(built) == [False, False, True]


def test_a_cache_that_cannot_be_written(tiny, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("SAMEBITS_CACHE_DIR", str(blocked / "below"))
    with pytest.raises(sk.BuildError, match="SAMEBITS_CACHE_DIR"):
        build.build(tiny)


def test_cli(cpu, monkeypatch):
    run = CliRunner()
    built = run.invoke(cli.main, ["build", "--arch", "cpu"])
    assert built.exit_code == 0
    assert "samebits_cpu.so" in built.output
    listed = json.loads(run.invoke(cli.main, ["list", "--json"]).output)
    assert [row["backend"] for row in listed] == ["cpu", "reference", "torch"]
    assert [row["batch_invariant"] for row in listed] == [True, True, False]
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert "isa: " in run.invoke(cli.main, ["doctor"]).output
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "true")
    assert run.invoke(cli.main, ["doctor"]).exit_code == 2
    monkeypatch.setenv("CXX", "/nonexistent/c++")
    failed = run.invoke(cli.main, ["build"])
    assert failed.exit_code == 3


def test_ninja_is_found_without_an_activated_environment(tiny, monkeypatch):
    kept = [p for p in os.environ["PATH"].split(os.pathsep) if p != str(Path(sys.executable).parent)]
    monkeypatch.setenv("PATH", os.pathsep.join(kept))
    assert build.build(tiny)["built"]
    assert os.environ["PATH"] == os.pathsep.join(kept)
