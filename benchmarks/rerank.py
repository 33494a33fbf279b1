"""The cost of reranking, of its training and of its evaluation, one part after the other.

    python benchmarks/rerank.py [--only NAME ...] [--threads N]

Heads on frozen vectors in training (`rerank_heads.py`), a cross-encoder that scores
(`rerank_cross.py`), and the measures of rankings (`metrics.py`); each alone, in its own process and
with its own defaults.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

PARTS = {
    "heads": ("rerank_heads.py", "Training a head on frozen vectors"),
    "cross": ("rerank_cross.py", "Scoring with a cross-encoder"),
    "metrics": ("metrics.py", "Measuring rankings"),
}


def main() -> None:
    """Run the parts; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    for name in arguments.only:
        script, title = PARTS[name]
        print(f"## {title}\n", flush=True)
        command = [sys.executable, str(Path(__file__).with_name(script))]
        if name != "metrics":
            command += ["--threads", str(arguments.threads)]
        done = subprocess.run(command, env=environment, check=False)
        if done.returncode:
            sys.exit(done.returncode)
        print(flush=True)


if __name__ == "__main__":
    main()
