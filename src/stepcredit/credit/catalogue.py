"""Every credit method by name: one line of the table a method, and the two functions that call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stepcredit.core.credit import Credit
from stepcredit.core.errors import InputError, NumericsError, OptionError, unknown_name
from stepcredit.core.turns import Turns
from stepcredit.credit.contrib.diversity import dpepo
from stepcredit.credit.contrib.trees import at2po, treepo
from stepcredit.credit.episode_level import grpo, reinforce_pp, rloo
from stepcredit.credit.graft import graft
from stepcredit.credit.graph_baselines import graphgpo, rewardflow, salt
from stepcredit.credit.history_groups import hgpo
from stepcredit.credit.method import Method
from stepcredit.credit.mixture import gaca
from stepcredit.credit.modulation import aem, empg, hcapo, progpo
from stepcredit.credit.state_groups import bipace, gigpo, rtmc
from stepcredit.credit.tree import tsbpo
from stepcredit.credit.turn_gae import gae

_POOLED = "roots and branches of a task form one group; returns run over the whole physical path"
_OWN_EDGES = "a branch adds its own turns to its task's graph, so that no replayed prefix counts twice"
_AS_BASE = "as its base method"

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
    Method(
        "graft",
        "graph",
        graft,
        "differences of exact state values on the graph of a task's episodes",
        "GRAFT, eq. 6 and Graph GAE",
        forest=_OWN_EDGES,
        presets={
            "alfworld": {"gamma": 0.99, "lam": 0.95},
            "webshop": {"gamma": 0.99, "lam": 0.8},
            "searchqa": {"gamma": 0.99, "lam": 0.6, "matcher": "embedding", "threshold": 0.9},
        },
    ),
    Method(
        "graphgpo",
        "graph",
        graphgpo,
        "episode credit plus step returns from the distance to the goal",
        "GraphGPO and its released code",
        forest=_OWN_EDGES,
        presets={"alfworld": {"decay": 0.1}, "webshop": {"decay": 0.2}},
    ),
    Method(
        "salt",
        "graph",
        salt,
        "episode credit averaged over equal edges",
        "SALT, merged trajectory graph",
        forest=_OWN_EDGES,
    ),
    Method(
        "rewardflow",
        "graph",
        rewardflow,
        "episode credit plus rewards from the best outcome within reach",
        "RewardFlow (arXiv 2603.18859), decayed propagation",
        forest=_OWN_EDGES,
    ),
    Method(
        "tsbpo",
        "tree",
        tsbpo,
        "segments compared at their split, plus a step term",
        "TSBPO, tree credit and segment balance",
        forest="made for forests; on chains roots are compared with roots",
        presets={"alfworld": {"gamma": 0.95}, "balanced": {"gamma": 0.95, "balance_cap": 6.0}},
    ),
    Method(
        "gae",
        "turn values",
        gae,
        "generalised advantage estimation over turns, from values you supply",
        "GAE (arXiv 1506.02438) eq. 16",
        needs=("values",),
        forest="every episode by its own turns",
    ),
    Method(
        "empg",
        "modulation",
        empg,
        "scales a base method by how sure the policy was, with a bonus for clear next turns",
        "EMPG (arXiv 2509.09265) eq. 8-12",
        needs=("entropy",),
        forest=_AS_BASE,
        scope="batch",
    ),
    Method(
        "aem",
        "modulation",
        aem,
        "scales a base method by how sure the policy was within the task",
        "AEM (arXiv 2605.00425)",
        needs=("entropy",),
        forest=_AS_BASE,
    ),
    Method(
        "hcapo",
        "modulation",
        hcapo,
        "adds how much hindsight makes a turn more likely",
        "HCAPO (arXiv 2603.08754)",
        needs=("hindsight",),
        forest=_AS_BASE,
    ),
    Method(
        "progpo",
        "modulation",
        progpo,
        "credit for new states where every episode failed, the base method elsewhere",
        "ProGPO",
        forest=_AS_BASE + "; a branch's path includes its replayed prefix",
    ),
    Method(
        "treepo",
        "contrib",
        treepo,
        "return under a turn against every subtree it lies in",
        "TreePO (arXiv 2508.17445)",
        forest="made for forests; on chains the return less the task's mean",
    ),
    Method(
        "at2po",
        "contrib",
        at2po,
        "values backed up with entropy weights, compared over the task",
        "AT²PO (arXiv 2601.04767)",
        needs=("entropy",),
        forest="made for forests; on chains grpo without penalties",
    ),
    Method(
        "dpepo",
        "contrib",
        dpepo,
        "episode credit plus a bonus for what other episodes did not do",
        "DPEPO (arXiv 2604.24320)",
        forest=_POOLED,
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
        NumericsError: rewards or options so large that credit overflows; names the first episode concerned.
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


def assign_spelled(turns: Turns, text: str, option: str) -> Credit:
    """Credit by a method spelled with its options in one text: ``gigpo``, ``graft:lam=0.8,gae=false``.

    Args:
        option: the option that holds the text, for error messages.

    Raises:
        OptionError: no such method or option, or an option that is not ``name=value`` or comes twice.
    """
    name, _, rest = text.partition(":")
    texts: dict[str, str] = {}
    for item in rest.split(",") if rest else ():
        key, equals, value = item.partition("=")
        if not equals:
            raise OptionError(f"Option {option!r}: got {item!r}, expected name=value, as in 'graft:lam=0.8'.")
        if key.strip() in texts:
            raise OptionError(f"Option {option!r}: got {key.strip()!r} twice, expected it once.")
        texts[key.strip()] = value
    return assign(turns, name, **parse_options(name, texts))


def _check_numbers(turns: Turns, credit: Credit, method: Method) -> None:
    """Refuse infinities, and NaN wherever the method scores."""
    scored = credit.scored if method.partial else np.ones(len(turns), dtype=np.bool_)
    for part, values in {"advantage": credit.advantage, **credit.components}.items():
        bad = scored & ~np.isfinite(values) if part == "advantage" or not method.partial else np.isinf(values)
        if bad.any():
            row = int(np.argmax(bad))
            raise NumericsError(
                f"Method {method.name!r} gives {part} {values[row]} at turn {turns.turn[row]} of episode "
                f"{turns.episode_names[turns.episode[row]]!r}; its rewards or options are too large for 64-bit floats."
            )
