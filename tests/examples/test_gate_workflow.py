"""The steps of the example workflow, run by a shell in a repository as it describes."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

WORKFLOW = Path(__file__).resolve().parents[2] / "examples/gate.yml"
TOPICS = [f"{color} {thing}" for color in ("red", "blue", "old") for thing in ("boat", "barn")]


@pytest.fixture
def step(tmp_path, write_jsonl):
    """Return a function that runs a step of the workflow in a repository."""
    pytest.importorskip("layer_retriever_minilm")
    numbered = list(enumerate(TOPICS))
    write_jsonl(
        *({"id": f"d{n}", "text": f"A {topic}."} for n, topic in numbered), name="corpus.jsonl"
    )
    write_jsonl(*({"id": f"q{n}", "text": topic} for n, topic in numbered), name="questions.jsonl")
    (tmp_path / "qrels.tsv").write_text("".join(f"q{n} 0 d{n} 1\n" for n, _ in numbered))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}

    def run(name):
        steps = re.findall(r"- name: (.*)\n +run: \|\n((?: {10}.*\n)+)", WORKFLOW.read_text())
        script = textwrap.dedent(dict(steps)[name])
        return subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )

    return run


def test_each_step_of_the_example_workflow_runs(step, tmp_path):
    assert step("Rank the questions").returncode == 0
    new = (tmp_path / "new.run").read_text()
    (tmp_path / "main.run").write_text(new)
    # The same hits prove that nothing changed.
    assert "Gate: pass" in step("Compare with the main branch").stdout
    (tmp_path / "summary").unlink()
    (tmp_path / "main.run").write_text(f"{new}q0 Q0 none 99 -9.0 x\n")
    done = step("Compare with the main branch")
    assert done.returncode == 0
    # Six questions are too few, which is a warning.
    assert "::warning::too few questions to tell" in done.stdout
    assert (tmp_path / "summary").read_text().startswith("# Gate: too few questions\n")
    assert (tmp_path / "gate/junit.xml").exists()
    (tmp_path / "new.run").write_text("".join(f"q{n} Q0 none 1 1.0 x\n" for n in range(6)))
    done = step("Compare with the main branch")
    assert done.returncode == 1
    assert "Gate: fail" in done.stdout
