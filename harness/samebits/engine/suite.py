"""Suites and cases: what is checked, declared in one place and importable by name.

suite = samebits.Suite("mine", summary="our fused MoE")

@suite.case(k=[512, 4096], dtype=["bfloat16", "float16"])
def dense(seed: int, k: int, dtype: str) -> samebits.Subject: ...

@suite.control(env={"VLLM_BATCH_INVARIANT": "0"}, k=[4096], dtype=["bfloat16"])
def dense_free(seed: int, k: int, dtype: str) -> samebits.Subject: ...
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from samebits.engine.subject import Subject
from samebits.errors import UsageError

Strategies = Callable[[], Mapping[str, Any]]
"""Makes parameter -> Hypothesis strategy; a function, so that declaring a search does not import Hypothesis."""
Factory = Callable[..., Subject]
"""`factory(seed=..., **parameters) -> Subject`, deterministic in its arguments."""


class Expect(StrEnum):
    """What a case must do."""

    INVARIANT = "invariant"
    """No finding, and at least one check with power."""
    DIVERGENCE = "divergence"
    """A control: it must be caught, or the suite has no power."""
    OBSERVED = "observed"
    """Somebody else's kernel that promises nothing: its divergence is shown and does not fail the run."""
    CRASH = "crash"
    """A control of the isolation: it must die, and the rest of the suite must not notice."""
    HANG = "hang"
    """Likewise, for a kernel that never returns."""


FLAG = "VLLM_BATCH_INVARIANT"
"""The environment variable that every suite's process starts with, set to 1 before the interpreter does."""


@dataclass(frozen=True)
class Case:
    """One subject under one configuration. `id` is stable: it names the case in reports and replays."""

    id: str
    suite: str
    factory: Factory
    parameters: Mapping[str, Any] = field(default_factory=dict)
    expect: Expect = Expect.INVARIANT
    env: Mapping[str, str] = field(default_factory=dict)
    """Laid over the suite's; cases with different environments run in different processes."""
    checks: tuple[str, ...] | None = None
    """Check ids to run, None for all that apply."""
    max_batch: int | None = None
    deadline: float | None = None
    """Seconds after which the case counts as hung; None: the run's default."""
    needs: Callable[[], str | None] | None = None
    """Returns why this machine cannot run the case, or None. Called in the worker, never in the parent."""
    strategies: Strategies | None = None
    """A search over configurations: Hypothesis draws the parameters and shrinks those that fail."""

    def at(self, parameters: Mapping[str, Any]) -> Case:
        """One configuration of a search, under the id that names it: "dense[k=64,n=8]"."""
        inside = ",".join(f"{k}={v!r}" for k, v in parameters.items())
        return replace(self, id=f"{self.id}[{inside}]", parameters=dict(parameters), strategies=None)

    def build(self, seed: int) -> Subject:
        """The subject, deterministic in (parameters, seed)."""
        return self.factory(seed=seed, **self.parameters)


class Suite:
    """Cases that run in one fresh process under one environment.

    Args:
        name: stable, lower case, `[a-z0-9_]`.
        summary: one line for `samebits list`.
        env: set before the interpreter starts, over `VLLM_BATCH_INVARIANT=1`.
        needs: as `Case.needs`, for every case.
    """

    def __init__(
        self,
        name: str,
        *,
        summary: str = "",
        env: Mapping[str, str] | None = None,
        needs: Callable[[], str | None] | None = None,
    ) -> None:
        if not name.replace("_", "").isalnum() or name != name.lower():
            raise UsageError("a suite needs a name", found=repr(name), allowed="lower case letters, digits and _")
        self.name, self.summary, self.needs = name, summary, needs
        self.env: dict[str, str] = {FLAG: "1", **(env or {})}
        self._cases: dict[str, Case] = {}

    def case(
        self,
        *,
        expect: Expect | str = Expect.INVARIANT,
        env: Mapping[str, str] | None = None,
        checks: Sequence[str] | None = None,
        max_batch: int | None = None,
        deadline: float | None = None,
        needs: Callable[[], str | None] | None = None,
        name: str | None = None,
        only: Callable[..., bool] | None = None,
        **parameters: Sequence[Any],
    ) -> Callable[[Factory], Factory]:
        """Declare one case for every combination of `parameters` (each a sequence) that `only` accepts."""

        def declare(factory: Factory) -> Factory:
            for values in itertools.product(*parameters.values()):
                chosen = dict(zip(parameters, values, strict=True))
                if only is not None and not only(**chosen):
                    continue
                case_id = "-".join([name or factory.__name__, *(f"{k}={v}" for k, v in chosen.items())])
                if case_id in self._cases:
                    raise UsageError(
                        f"suite {self.name} declares case {case_id} twice",
                        fix="give one of them another name=",
                    )
                self._cases[case_id] = Case(
                    id=case_id,
                    suite=self.name,
                    factory=factory,
                    parameters=chosen,
                    expect=Expect(expect),
                    env={**self.env, **(env or {})},
                    checks=tuple(checks) if checks is not None else None,
                    max_batch=max_batch,
                    deadline=deadline,
                    needs=needs or self.needs,
                )
            return factory

        return declare

    def control(self, **options: Any) -> Callable[[Factory], Factory]:
        """A case that must be caught. A suite whose controls pass has no power and is not green."""
        return self.case(expect=Expect.DIVERGENCE, **options)

    def explore(
        self,
        strategies: Strategies,
        *,
        max_batch: int = 33,
        checks: Sequence[str] = ("batch-size", "duplicates", "neighbours"),
        **options: Any,
    ) -> Callable[[Factory], Factory]:
        """A case whose parameters Hypothesis draws: shapes, dtypes, routing, seeds.

            @suite.explore(lambda: {"k": st.integers(1, 32).map(lambda b: 16 * b), "n": st.integers(8, 300)})
            def any_shape(seed: int, k: int, n: int) -> Subject: ...

        Every configuration is checked for all M up to `max_batch`. One that fails is shrunk to the smallest, and
        reported under its own id, which `samebits replay` runs again.
        """

        def declare(factory: Factory) -> Factory:
            self.case(max_batch=max_batch, checks=checks, **options)(factory)
            case_id = options.get("name") or factory.__name__
            self._cases[case_id] = replace(self._cases[case_id], strategies=strategies)
            return factory

        return declare

    def __iter__(self) -> Iterator[Case]:
        return iter(self._cases.values())

    def __len__(self) -> int:
        return len(self._cases)

    def __getitem__(self, case_id: str) -> Case:
        if case_id in self._cases:
            return self._cases[case_id]
        base, bracket, inside = case_id.partition("[")
        searched = self._cases.get(base)
        if searched is not None and searched.strategies is not None and bracket and inside.endswith("]"):
            return searched.at(_parameters(case_id, inside[:-1]))
        known = ", ".join(itertools.islice(self._cases, 8))
        raise UsageError(
            f"suite {self.name} has no case {case_id!r}", allowed=known, fix=f"samebits list {self.name}"
        )


def _parameters(case_id: str, text: str) -> dict[str, Any]:
    """{"k": 64, "n": 8} from "k=64,n=8"."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, AssertionError):
        raise UsageError(
            f"case {case_id!r} names a configuration", found=text, allowed="NAME[parameter=literal,...]"
        ) from None
