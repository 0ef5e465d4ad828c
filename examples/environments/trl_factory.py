"""What TRL's GRPO trainer does with one of our environments, by hand; with TRL it is these two arguments:

    GRPOTrainer(model, train_dataset=Dataset.from_list(rows), environment_factory=factory, reward_funcs=[success], …)

TRL puts the reset's answer behind the prompt, offers the method ``act`` to the model as a tool, and asks for the
reward. For step-level credit inside TRL use ``StepCreditGRPOTrainer``, which needs no tools.
"""

from typing import Any

from stepcredit.environments.catalogue import make_suite
from stepcredit.integrations.environments.as_trl import TrlEnvironment, dataset_rows, environment_factory

suite = make_suite("household", families=["pick"], train=2, valid_seen=1, valid_unseen=1)
rows = dataset_rows(suite)
factory = environment_factory(suite, horizon=6)


def success(environments: list[TrlEnvironment], **_: Any) -> list[float]:
    """A reward function; the turns of every rollout are at hand, with their rewards."""
    return [environment.get_reward() - 0.01 * len(environment.turns) for environment in environments]


environments = [factory() for _ in range(2)]
for environment, row in zip(environments, [rows[0], rows[0]], strict=True):
    print(row["prompt"][0]["content"])
    print(environment.reset(**row).splitlines()[-1])
for command in ("look", "inventory", "go to nowhere"):
    print(environments[0].act(command))
print("rewards", success(environments))
