"""The command line: one file a verb; parse, call, print.

Exit status: 0 done, 2 the user's mistake (one sentence on standard error), 130 interrupted.
"""

from __future__ import annotations

import sys

from cyclopts import App
from cyclopts.exceptions import CycloptsError

from stepcredit import __version__
from stepcredit.core.errors import StepcreditError

USER_MISTAKE = 2
INTERRUPTED = 130

VERBS = {
    "train": "Train an agent as a recipe says, or continue a run.",
    "evaluate": "Success of a run or a model on fixed tasks, by family, with intervals.",
    "assign": "Credit for every turn of a rollout file.",
    "report": "One HTML page about a run or rollout files: where credit went.",
    "compare-runs": "One HTML page that lays runs side by side.",
    "watch": "A live run in the terminal.",
    "methods": "The credit methods: options, presets, sources.",
    "envs": "The environments: splits, counts, options.",
    "play": "Play an environment yourself.",
    "replay": "Feed recorded commands to an environment and print what it answers.",
}
"""Every verb with its one line of help. Verb ``x-y`` is function ``x_y`` of ``cli/x_y.py``, imported when called."""


def make_app() -> App:
    """The command-line application."""
    app = App(
        name="stepcredit",
        help="Train language-model agents with step-level credit, or assign it to anybody's rollouts.",
        version=__version__,
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    for verb, summary in VERBS.items():
        name = verb.replace("-", "_")
        app.command(f"stepcredit.cli.{name}:{name}", name=verb, help=summary)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        make_app()(arguments)
    except (StepcreditError, CycloptsError) as error:
        print(f"stepcredit: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(USER_MISTAKE)
    except KeyboardInterrupt:
        print("stepcredit: interrupted; what was finished is kept.", file=sys.stderr)
        sys.exit(INTERRUPTED)
