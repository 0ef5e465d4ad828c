"""The command line: one file a verb; parse, call, print.

Exit status: 0 done, 2 the user's mistake or the system's refusal (one sentence on standard error), 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from cyclopts import App
from cyclopts.exceptions import CycloptsError

from stepcredit import __version__
from stepcredit.core.errors import StepcreditError
from stepcredit.core.text import harmless

USER_MISTAKE = 2
INTERRUPTED = 130

VERBS = {
    "train": "Train an agent as a recipe says, or continue a run.",
    "models": "Pretrained models that come with a Python package, as trainable folders.",
    "demonstrate": "Successful episodes of an expert or a teacher as a chat file.",
    "sft": "Fine-tune a language model on a chat file.",
    "export": "The policy of a run as a plain model folder.",
    "evaluate": "Success of a run, a model or an endpoint under a protocol, by family, with intervals.",
    "compare": "Two evaluations paired task by task.",
    "select": "The best mean over seeds of several runs, and the figure at a fixed update beside it.",
    "assign": "Credit for every turn of a rollout file.",
    "convert": "Logs of verl, TRL, verifiers and others as a rollout file.",
    "report": "One HTML page about a run or rollout files: where credit went.",
    "compare-runs": "One HTML page that lays runs side by side.",
    "watch": "A live run in the terminal.",
    "methods": "The credit methods: options, presets, sources.",
    "envs": "The environments: splits, counts, options.",
    "play": "Play an environment yourself.",
    "replay": "Feed recorded commands to an environment and print what it answers.",
    "check-env": "Whether an environment keeps the protocol's promises.",
    "doctor": "Which training engines are installed, and whether they use stepcredit.",
    "serve-retriever": "Serve a corpus to stacks that ask a Search-R1 server.",
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
        print(f"stepcredit: {harmless(' '.join(str(error).split()))}", file=sys.stderr)
        sys.exit(USER_MISTAKE)
    except OSError as error:  # what the system refuses beside the files of a verb: standard output is full, say
        print(f"stepcredit: {harmless(str(error))}", file=sys.stderr)
        with suppress(OSError):  # Python would try once more when it flushes at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(USER_MISTAKE)
    except KeyboardInterrupt:
        print("stepcredit: interrupted; what was finished is kept.", file=sys.stderr)
        sys.exit(INTERRUPTED)
