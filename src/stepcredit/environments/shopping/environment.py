"""The shop as an environment: one goal, one purchase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stepcredit.environments.protocol import PLACEHOLDER, Info, Task
from stepcredit.environments.shopping.goals import Goal
from stepcredit.environments.shopping.session import START, Session, Visit
from stepcredit.environments.shopping.shop import Shop

RewardKind = Literal["success", "score"]
FREE_SEARCH = f"search[{PLACEHOLDER}]"
"""Stands for every search among admissible commands."""


def search_command(text: str) -> str:
    """The search for a text: lower-cased, white space folded, without closing brackets."""
    return f"search[{' '.join(text.lower().replace(']', ' ').split())}]"


def suggested_searches(goal: Goal) -> list[str]:
    """Searches that a goal's own words suggest: the whole sentence, and what is wanted without options and price."""
    return list(dict.fromkeys(search_command(text) for text in (goal.text, goal.request)))


class ShoppingInfo(Info, total=False):
    """What the shop tells beside the page.

    components: parts of the score after a purchase, see ``PurchaseScore.components``.
    """

    components: dict[str, float]


class ShoppingEnvironment:
    """Plays one goal. Buying ends the task; an inadmissible command changes nothing.

    Args:
        task: the task being played.
        shop: where.
        goal: what the task's sentence asks for.
        suggestions: searches that the search page lists beside ``FREE_SEARCH``.
        reward: ``success``: 1 for a purchase that fulfils the goal exactly, else 0; ``score``: what it is worth.
    """

    def __init__(self, task: Task, shop: Shop, goal: Goal, *, suggestions: Sequence[str], reward: RewardKind) -> None:
        self.task = task
        self.goal = goal
        self.session = Session(shop, goal)
        self.suggestions = tuple(suggestions)
        self._reward = reward

    def reset(self) -> tuple[str, ShoppingInfo]:
        """Back to the search page."""
        self.session.go(START)
        return self.session.agent_text(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, ShoppingInfo]:
        """Execute ``search[words]`` or ``click[text]``. The reward comes with the purchase."""
        moved = self.session.act(action)
        info = self._info()
        ended = self.session.visit.page == "receipt"
        reward = (float(info["won"]) if self._reward == "success" else info["score"]) if moved and ended else 0.0
        return self.session.agent_text(), reward, ended, False, info

    def snapshot(self) -> Visit:
        """The present visit, immutable."""
        return self.session.visit

    def restore(self, snapshot: object) -> None:
        """Return to a visit of this task.

        Raises:
            TypeError: not a shopping snapshot.
        """
        if not isinstance(snapshot, Visit):
            raise TypeError(f"Cannot restore a {type(snapshot).__name__}; expected what snapshot() gave.")
        self.session.go(snapshot)

    def close(self) -> None:
        """Nothing is held."""

    def _info(self) -> ShoppingInfo:
        commands = [f"click[{text}]" for text in self.session.clickables if text]
        if self.session.visit.page == "search":
            commands += (FREE_SEARCH, *self.suggestions)
        info: ShoppingInfo = {"admissible": sorted(commands), "won": False}
        score = self.session.score
        if score is not None:
            info["won"] = score.total == 1.0
            info["score"] = score.total
            info["components"] = score.components()
        return info
