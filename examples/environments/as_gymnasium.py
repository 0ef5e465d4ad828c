"""A household task in a program that knows Gymnasium and nothing of stepcredit.

pip install 'stepcredit[gymnasium]'; python examples/environments/as_gymnasium.py
"""

import gymnasium

# The part before the colon is the module that registers stepcredit/household-v0, stepcredit/shopping-v0 and so on.
HOUSEHOLD = "stepcredit.integrations.environments.as_gymnasium:stepcredit/household-v0"

environment = gymnasium.make(HOUSEHOLD, split="valid_unseen", horizon=30, families=["pick"])
observation, info = environment.reset(seed=0)
print(info["goal"])
seen: set[str] = set()
for turn in range(30):
    # Take the thing that the goal names first, put it where the goal says, and go where nobody has been.
    thing, place = info["goal"].split()[2], info["goal"].split()[-1].rstrip(".")
    for command in info["admissible_commands"]:
        words = command.split()
        if words[0] == "take" and words[1] == thing and words[-2] != place:
            break
        if words[0] == "move" and words[-2] == place:
            break
    else:
        fresh = [one for one in info["admissible_commands"] if one.split()[0] in ("open", "go") and one not in seen]
        command = fresh[0] if fresh else "look"
    seen.add(command)
    observation, reward, terminated, truncated, info = environment.step(command)
    print(f"{turn + 1:2} {command:32} {observation.splitlines()[0][:80]}")
    if terminated or truncated:
        break
print("won" if info["won"] else "not won")
environment.close()
