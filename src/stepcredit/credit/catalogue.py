"""Every credit method by name: one line of the table a method, and the two functions that call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stepcredit.core.credit import Credit
from stepcredit.core.errors import InputError, NumericsError, unknown_name
from stepcredit.core.turns import Turns
from stepcredit.credit.episode_level import grpo, reinforce_pp, rloo
from stepcredit.credit.history_groups import hgpo
from stepcredit.credit.method import Method
from stepcredit.credit.mixture import gaca
from stepcredit.credit.state_groups import bipace, gigpo, rtmc

_POOLED = "roots and branches of a task form one group; returns run over the whole physical path"

_METHODS = (
    Method(
        "grpo",
        "episode level",
        grpo,
        "return of the episode against its task group",
        "DeepSeekMath (arXiv 2402.03300) §4.1.2; Dr. GRPO (arXiv 2503.20783) §3.2",
        forest=_POOLED,
        presets={"deepseekmath": {"statistics": "episode"}, "dr_grpo": {"statistics": "episode", "normalize": "mean"}},
    ),
    Method(
        "rloo",
        "episode level",
        rloo,
        "return of the episode against the mean of the others",
        "Ahmadian et al. (arXiv 2402.14740) §3",
        forest=_POOLED,
    ),
    Method(
        "reinforce_pp",
        "episode level",
        reinforce_pp,
        "return less the group mean, whitened over the batch",
        "REINFORCE++ (arXiv 2501.03262), baseline variant",
        forest=_POOLED,
        scope="batch",
    ),
    Method(
        "gigpo",
        "state groups",
        gigpo,
        "episode credit plus step returns compared within one state",
        "GiGPO (arXiv 2505.10978) eq. 3, 5-8",
        forest=_POOLED,
        presets={
            "alfworld": {"normalize": "mean_std", "gamma": 0.95, "step_weight": 1.0},
            "webshop": {"normalize": "mean", "gamma": 0.95, "step_weight": 1.0},
            "searchqa": {"normalize": "mean_std", "gamma": 0.95, "matcher": "text", "threshold": 0.9},
        },
    ),
    Method(
        "rtmc",
        "state groups",
        rtmc,
        "mean return of an action less the mean return of its state",
        "RTMC (arXiv 2604.11037)",
        forest=_POOLED,
    ),
    Method(
        "bipace",
        "state groups",
        bipace,
        "episode credit plus same-action peers against their state cluster",
        "BiPACE (arXiv 2606.25556)",
        forest=_POOLED,
    ),
    Method(
        "hgpo",
        "history groups",
        hgpo,
        "step returns compared within ever longer shared histories",
        "HGPO (arXiv 2602.22817)",
        forest=_POOLED + "; histories run through the replayed prefix",
        presets={
            "alfworld": {"normalize": "mean_std", "history": 4},
            "alfworld_k2": {"normalize": "mean_std", "history": 2},
            "webshop": {"normalize": "mean", "history": 4},
            "webshop_k2": {"normalize": "mean", "history": 2},
        },
    ),
    Method(
        "gaca",
        "mixture",
        gaca,
        "episode and step credit mixed by how unsure the policy was",
        "GACA, mixture and gate; estimators in its appendix",
        needs=("nll",),
        forest=_POOLED + "; the mean of nll runs through the replayed prefix",
        presets={"alfworld": {"normalize": "mean_std"}, "webshop": {"normalize": "mean"}},
    ),
)

METHODS: dict[str, Method] = {method.name: method for method in _METHODS}
"""Name → method, families in reading order."""


def find_method(name: str) -> Method:
    """The method of that name.

    Raises:
        OptionError: no such method; names the nearest one.
    """
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]


def parse_options(name: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Command-line strings as the options of method ``name``.

    Raises:
        OptionError: no such method or option, or a value that does not fit.
    """
    return find_method(name).parse_options(texts)


def assign(turns: Turns, name: str, **options: Any) -> Credit:
    """Credit of every turn by method ``name``.

    Options are checked before anything is computed, the result after: a scored row is always a finite number.

    Raises:
        OptionError: no such method or option, or a value that does not fit.
        InputError: the turns lack what the method needs, or branch where it runs on chains only.
        NumericsError: rewards so large that credit overflows; names the first episode concerned.
    """
    method = find_method(name)
    checked = method.check_options(options)
    if method.forest is None and turns.is_forest:
        branch = turns.episode_names[int(np.flatnonzero(turns.branch_row >= 0)[0])]
        raise InputError(
            f"Method {name!r} runs on chains only, but episode {branch!r} is a branch; leave branches out."
        )
    # Overflow is reported below with the episode's name, so numpy's own warnings would only say it twice.
    with np.errstate(over="ignore", invalid="ignore"):
        credit = method.function(turns, **checked)
    _check_numbers(turns, credit, method)
    return credit


def _check_numbers(turns: Turns, credit: Credit, method: Method) -> None:
    """Refuse infinities, and NaN wherever the method scores."""
    scored = credit.scored if method.partial else np.ones(len(turns), dtype=np.bool_)
    for part, values in {"advantage": credit.advantage, **credit.components}.items():
        bad = scored & ~np.isfinite(values) if part == "advantage" or not method.partial else np.isinf(values)
        if bad.any():
            row = int(np.argmax(bad))
            raise NumericsError(
                f"Method {method.name!r} gives {part} {values[row]} at turn {turns.turn[row]} of episode "
                f"{turns.episode_names[turns.episode[row]]!r}; its rewards are too large for 64-bit floats."
            )
