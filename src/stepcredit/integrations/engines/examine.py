"""Whether the engines of this Python environment would really use stepcredit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata

from stepcredit.credit.catalogue import METHODS
from stepcredit.integrations.engines.installed import ENGINES, TRL, VERL, Engine, check_version

ENTRY_POINTS = "verl.plugins"
PLUGIN = "stepcredit.integrations.verl.plugin"


@dataclass(frozen=True, slots=True)
class Report:
    """What was found of one engine.

    Attributes:
        engine: which.
        version: installed version, None where there is none.
        problems: what keeps it from working, one sentence each.
        works: what was seen to work.
    """

    engine: Engine
    version: str | None
    problems: tuple[str, ...] = ()
    works: tuple[str, ...] = ()


def examine_all() -> list[Report]:
    """Every engine that has an integration."""
    return [examine(engine) for engine in ENGINES]


def examine(engine: Engine) -> Report:
    """One engine: its version, and whether its integration loads; an engine that is not installed has no problems."""
    version = engine.installed()
    if version is None:
        return Report(engine, None)
    works, problems = [], []
    for check in (_version, *_CHECKS[engine.name]):
        try:
            works.append(check(engine))
        except Exception as error:  # whatever an engine raises while it is imported is what is being looked for
            problems.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
    return Report(engine, version, tuple(problems), tuple(works))


def _version(engine: Engine) -> str:
    check_version(engine, engine.installed() or "")
    return f"version in {engine.supported}"


def _alone(engine: Engine) -> str:
    """verl imports from trl, where it is there, a class that trl 1 dropped."""
    other = TRL.installed()
    if other is not None and TRL.supports(other):
        raise ImportError(f"trl {other} is installed beside verl, which cannot import it; use two environments")
    return "no trl beside it"


def _entry_point(engine: Engine) -> str:
    found = [point for point in metadata.entry_points(group=ENTRY_POINTS) if point.value == PLUGIN]
    if not found:
        raise ImportError(f"no entry point {PLUGIN} in {ENTRY_POINTS}; install stepcredit again")
    return f"entry point in {ENTRY_POINTS}"


def _registered(engine: Engine) -> str:
    """verl swallows what a plugin raises, so what it has is compared with what it should have."""
    algorithms = import_module("verl.trainer.ppo.core_algos")
    missing = [name for name in METHODS if f"stepcredit_{name}" not in algorithms.ADV_ESTIMATOR_REGISTRY]
    if missing:
        import_module(PLUGIN)  # says why, where it can
        raise ImportError(
            f"verl has not registered stepcredit_{missing[0]}; "
            f"VERL_USE_EXTERNAL_PLUGINS must be unset, auto, or name stepcredit"
        )
    losses = [name for name in algorithms.POLICY_LOSS_REGISTRY if name.startswith("stepcredit_")]
    return f"{len(METHODS)} estimators registered; policy losses {', '.join(sorted(losses))}"


def _imports(module: str) -> Callable[[Engine], str]:
    def check(engine: Engine) -> str:
        import_module(module)
        return f"{module} imports"

    return check


_CHECKS: dict[str, tuple[Callable[[Engine], str], ...]] = {
    VERL.name: (_alone, _entry_point, _registered, _imports("stepcredit.integrations.verl.tasks")),
    TRL.name: (_imports("stepcredit.integrations.trl"),),
}
