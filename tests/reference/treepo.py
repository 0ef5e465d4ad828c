"""TreePO's tree credit by loops: docs/methods/treepo.md."""

from __future__ import annotations

from collections.abc import Sequence

from reference.rows import mean
from reference.tree import Forest
from stepcredit.core.episodes import Episode


def treepo(episodes: Sequence[Episode]) -> list[float]:
    forest = Forest(episodes)
    credit = []
    for row in forest.rows:
        subtrees = []
        in_task = [episode for episode in episodes if episode.task == row.task]
        if sum(episode.parent is None for episode in in_task) >= 2:
            subtrees.append([forest.returns[episode.episode] for episode in in_task])
        for member in row.path:
            siblings = forest.siblings(member)
            if len(siblings) >= 2:
                subtrees.append([leaf for sibling in siblings for leaf in forest.leaf_returns(sibling)])
        score = forest.terminal(row)
        credit.append(mean([score - mean(subtree) for subtree in subtrees]) if subtrees else 0.0)
    return credit
