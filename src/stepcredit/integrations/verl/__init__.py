"""verl: credit by turn as advantage estimators, policy losses, and an agent loop that plays our environments.

Modules, from the inside out:

* ``plugin``: what verl loads through its entry-point group ``verl.plugins``; registers everything else.
  ``watching`` lets it change verl's trainer where, and when, that is imported.
* ``advantage``: the estimators, inside verl's default (V1) trainer.
* ``losses``: ``stepcredit_turn_clip``, ``stepcredit_complete_turn`` and the tangent reference penalty.
* ``settings``: the keys under ``data.stepcredit``; ``tasks``: the dataset; ``agent_loop``: one training row a turn.
* ``recipe``: a training recipe as verl's overrides.

This package is empty on purpose: Ray may unpickle one of its classes before verl itself is imported.
"""
