"""Forked workers: threads are the child's own, and nothing hangs; a template may have used the kernels before."""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading

import pytest
import torch

import samebits_kernels as sk


@functools.cache
def operands():
    # Made once, before any fork. Torch's own parallel loops (OpenMP) hang in a child of a parent that has used
    # them, so a child must not run large torch operations; our kernels have to work all the same.
    g = torch.Generator().manual_seed(0)
    a = sk.quantise(torch.randn(16, 1024, generator=g).to(torch.bfloat16), torch.ones(1), backend="cpu")
    b = sk.quantise(torch.randn(512, 1024, generator=g).to(torch.bfloat16), torch.ones(1), backend="cpu")
    return *a, *b


def product():
    a, a_scale, b, b_scale = operands()
    d = sk.scaled_mm(a, b, a_scale, b_scale, torch.ones(1), backend="cpu")
    return d.view(torch.uint8).numpy().tobytes()


def _child(queue):
    queue.put(product())


def run_children(count):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_child, args=(queue,)) for _ in range(count)]
    for child in children:
        child.start()
    results = [queue.get(timeout=60) for _ in children]
    for child in children:
        child.join(timeout=60)
        assert child.exitcode == 0
    return results


@pytest.fixture
def two_threads(cpu):
    operands()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield cpu
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_after_the_pool_started(two_threads):
    expected = product()
    assert two_threads._native.pool_size() >= 1
    assert run_children(3) == [expected] * 3
    assert product() == expected


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_while_another_thread_computes(two_threads):
    expected = product()
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            product()

    worker = threading.Thread(target=busy)
    worker.start()
    try:
        assert run_children(4) == [expected] * 4
    finally:
        stop.set()
        worker.join()


def test_calls_from_several_threads(two_threads):
    expected = product()
    results = []
    threads = [threading.Thread(target=lambda: results.append(product())) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [expected] * 4


def test_a_child_leaves_without_waiting_for_threads(two_threads):
    product()
    pid = os.fork()
    if pid == 0:
        product()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
