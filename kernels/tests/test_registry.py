"""Choosing a backend, the flag, contracts and the probe."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

import samebits_kernels as sk
from samebits_kernels.backends import registry
from samebits_kernels.backends.reference import ReferenceBackend

FLAG = "VLLM_BATCH_INVARIANT"


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("0", False), ("1", True)])
def test_flag(monkeypatch, value, expected):
    monkeypatch.delenv(FLAG, raising=False)
    if value is not None:
        monkeypatch.setenv(FLAG, value)
    assert sk.batch_invariant() is expected


@pytest.mark.parametrize("value", ["true", "2", "", "01", " 1", "on"])
def test_flag_refuses_the_rest(monkeypatch, value):
    monkeypatch.setenv(FLAG, value)
    with pytest.raises(sk.UsageError, match="0, 1 or unset"):
        sk.batch_invariant()


def test_a_backend_that_says_no_is_refused_under_the_flag(monkeypatch):
    monkeypatch.setenv(FLAG, "1")
    with pytest.raises(sk.UsageError, match=r"torch does not support batch invariance(.|\n)*reference") as caught:
        sk.resolve("torch")
    assert "unset" in str(caught.value)
    monkeypatch.setenv(FLAG, "0")
    assert sk.resolve("torch").name == "torch"


def test_the_torch_backend_computes_the_same_function(monkeypatch, layer):
    monkeypatch.setenv(FLAG, "0")
    weights = layer(4, 64, 32)
    hidden, logits = torch.randn(9, 64).to(torch.bfloat16), torch.randn(9, 4)
    ours = sk.moe(hidden, logits, *weights, 2, backend="reference")
    torch.testing.assert_close(sk.moe(hidden, logits, *weights, 2, backend="torch"), ours)


def test_unavailable_backends_say_why_and_others_are_used(monkeypatch, caplog):
    class Broken(ReferenceBackend):
        name = "broken"

        def available(self):
            return "no such card"

    sk.register(Broken(), first=True)
    try:
        with pytest.raises(sk.BackendUnavailableError, match="no such card"):
            sk.resolve("broken")
        assert sk.resolve().name != "broken"
        assert "no such card" in caplog.text
        with pytest.raises(sk.UsageError, match="its own name"):
            sk.register(Broken())
    finally:
        sk.unregister("broken")


def test_without_a_compiler_the_reference_runs_and_says_so(monkeypatch, caplog):
    monkeypatch.setenv("CXX", "/nonexistent/c++")
    monkeypatch.setattr(registry, "_RESOLVED", {})
    assert sk.resolve().name == "reference"
    assert "no C++ compiler" in caplog.text
    with pytest.raises(sk.BackendUnavailableError, match="/nonexistent/c"):
        sk.resolve("cpu")


def test_another_device():
    with pytest.raises(sk.BackendUnavailableError, match="no backend for cuda"):
        sk.resolve("", "cuda")
    with pytest.raises(sk.UsageError, match="computes on cpu"):
        sk.resolve("reference", "cuda")


def test_contract(backend):
    contract = sk.contract("scaled_mm", backend)
    assert contract["batch_invariant"] is True
    assert contract["backend"] == backend
    assert len(str(contract["sources"])) == 64
    assert "K/16" in str(contract["tree"])
    with pytest.raises(sk.UsageError, match="scaled_mm, route"):
        sk.contract("gemm", backend)


PROBE = "import json, samebits_kernels as sk; print(json.dumps(sk.probe('cpu')))"


@pytest.mark.parametrize(("value", "schedule"), [(None, "free"), ("0", "free"), ("1", "invariant")])
def test_the_library_reads_the_flag_itself(cpu, value, schedule):
    env = {k: v for k, v in os.environ.items() if k != FLAG}
    if value is not None:
        env[FLAG] = value
    done = subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, check=True)
    probe = json.loads(done.stdout)
    assert probe[FLAG] == int(value or 0)
    assert probe["schedule"] == schedule


def test_the_library_keeps_what_it_read(cpu, monkeypatch):
    before = sk.probe("cpu")[FLAG]
    monkeypatch.setenv(FLAG, str(1 - int(before)))
    probe = sk.probe("cpu")
    assert probe[FLAG] == before
    assert probe["python"] == 1 - int(before)
