"""What verl loads through its entry-point group ``verl.plugins``: importing this module registers everything.

verl imports its plugins in every process and swallows what they raise, so a failure is logged here as an error first;
``stepcredit doctor`` shows it too. Only what every process needs is imported at once; the trainer is changed when, and
where, it is imported.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from types import ModuleType
from typing import Any, NoReturn

from stepcredit.core.errors import OptionError
from stepcredit.credit.catalogue import METHODS
from stepcredit.integrations.engines.installed import VERL, check_version
from stepcredit.integrations.verl.watching import after_import

PREFIX = "stepcredit_"
"""Before a method's name in ``algorithm.adv_estimator``."""

TRAINER = "verl.trainer.ppo.v1.trainer_base"

replaced: ContextVar[bool] = ContextVar("replaced", default=False)
"""Set while verl computes what our advantages then replace."""


def register() -> None:
    """Register estimators and losses, and change the trainer once it is imported.

    Raises:
        OptionError: a version of verl that this plugin was not made for.
        ValueError: a name is taken.
    """
    import verl
    from verl.trainer.ppo import core_algos

    from stepcredit.integrations.verl import losses

    check_version(VERL, verl.__version__)
    for name in METHODS:
        core_algos.register_adv_est(PREFIX + name)(_placeholder)
    core_algos.register_policy_loss(losses.TURN_CLIP)(losses.turn_clip)
    core_algos.register_policy_loss(losses.COMPLETE_TURN)(losses.complete_turn)
    # verl has no registry for reference penalties, and its loss imports this function by name, later.
    core_algos.kl_penalty = losses.kl_penalty_with_tangent(core_algos.kl_penalty)
    after_import(TRAINER, _change_trainer)


def _change_trainer(module: ModuleType) -> None:
    from stepcredit.integrations.verl.advantage import change

    change(module.PPOTrainer)


def _placeholder(token_level_rewards: Any, **_: Any) -> Any:
    """Stands under our names in verl's registry of estimators.

    In the V1 trainer its zeros are replaced by turn-level advantages. verl gives an estimator no task, episode, turn
    or state, so there is nothing else that it could compute.

    Raises:
        OptionError: called by any other trainer.
    """
    if not replaced.get():
        raise OptionError(
            f"Estimators named {PREFIX}* need verl's V1 trainer, which is the default; remove trainer.use_v1=False."
        )
    zeros = token_level_rewards * 0
    return zeros, zeros


def _fail(error: Exception) -> NoReturn:
    logging.getLogger("stepcredit").error("The stepcredit plugin of verl is not registered: %s", error)
    raise error


try:
    register()
except Exception as error:  # whatever it is, verl would not say it
    _fail(error)
