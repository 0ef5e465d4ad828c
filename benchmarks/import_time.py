"""Import time of the package: median wall time of fresh interpreters, with the interpreter's own start subtracted.

python benchmarks/import_time.py [--repeats 15] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

MODULES = ("stepcredit", "stepcredit.credit", "stepcredit.cli")


def seconds(code: str, repeats: int) -> float:
    """Median wall time of ``python -c code``."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def slowest(module: str, count: int) -> list[tuple[str, float]]:
    """The imports that cost most by themselves, by ``python -X importtime``; milliseconds."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    rows = [line.removeprefix("import time:").split("|") for line in report.splitlines()[1:]]
    costs = [(name.strip(), int(own) / 1000) for own, _, name in rows]
    return sorted(costs, key=lambda row: -row[1])[:count]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15, help="interpreters started per module")
    parser.add_argument("--json", action="store_true", help="print one JSON object, seconds")
    options = parser.parse_args()
    bare = seconds("pass", options.repeats)
    result = {module: seconds(f"import {module}", options.repeats) - bare for module in ("numpy", *MODULES)}
    if options.json:
        print(json.dumps(result))
        return
    for module, taken in result.items():
        print(f"{module:20} {1000 * taken:6.0f} ms")
    print("\nslowest single imports of stepcredit.cli")
    for name, cost in slowest("stepcredit.cli", 8):
        print(f"{name:40} {cost:6.1f} ms")


if __name__ == "__main__":
    main()
