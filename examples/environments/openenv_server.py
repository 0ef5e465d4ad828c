"""A household server that speaks OpenEnv, and step-level credit on what a client plays there.

    pip install openenv; python examples/environments/openenv_server.py

Server and client are two threads here; ``uvicorn --factory`` serves the same application on its own, and any OpenEnv
client plays it.
"""

import socket
import threading
import time

import uvicorn

from stepcredit import Turns, assign
from stepcredit.environments.catalogue import make_suite
from stepcredit.integrations.environments.as_openenv import make_app
from stepcredit.integrations.environments.openenv_client import OpenenvSuite
from stepcredit.policy.linear import LinearPolicy
from stepcredit.rollouts.collect import collect

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
household = make_suite("household", families=["pick"], train=2, valid_seen=1, valid_unseen=1)
app = make_app(household, horizon=15)
server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", ws="websockets-sansio"))
thread = threading.Thread(target=server.run, daemon=True)
thread.start()
while not server.started:
    time.sleep(0.05)

suite = OpenenvSuite(url=f"http://127.0.0.1:{port}", horizon=15)
collected = collect(LinearPolicy(), suite, suite.tasks("train"), group_size=4, horizon=15, seed=[0])
turns = Turns.from_episodes(rollout.episode for rollout in collected.rollouts)
print(f"{len(turns)} turns of {len(turns.episode_names)} episodes over the wire")
print("mean |advantage|", round(float(abs(assign(turns, "gigpo").advantage).mean()), 3))
server.should_exit = True
thread.join()
