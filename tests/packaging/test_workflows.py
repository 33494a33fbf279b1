"""Workflows and containers are pinned and name targets and commands that exist."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
COMPOSE = ROOT / "compose.yaml"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def steps(workflow):
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("file", [*sorted((ROOT / ".github").rglob("*.yml")), COMPOSE], ids=str)
def test_every_workflow_and_compose_file_is_valid_yaml(file):
    assert yaml.safe_load(file.read_text())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_permissions_are_named(workflow):
    text = workflow.read_text()
    used = re.findall(r"uses: (.*)", text)
    assert len(used) == sum("uses" in step for step in steps(workflow)) > 0
    assert not [
        action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", action)
    ]
    assert len(set(used)) == len({action.partition("@")[0] for action in used})
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


def test_make_targets_of_workflows_exist():
    targets = {
        target
        for workflow in WORKFLOWS
        for step in steps(workflow)
        for target in re.findall(r"^make (.+)", step.get("run", ""), re.MULTILINE)
    }
    assert targets >= {"test", "lowest", "newest", "soak", "integrations"}
    for target in targets:
        subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)


def test_tested_python_versions_equal_the_classifiers():
    tests = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    stated = [
        name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)
    ]
    assert tests["jobs"]["test"]["strategy"]["matrix"]["python"] == stated
    assert re.findall(r"FROM python:([\d.]+)-slim", DOCKERFILE)[0] in stated


def check_command(arguments):
    """Assert that the command line has this command with these options."""
    name, *rest = arguments
    # The root's settings, since a command keeps the spellings of --help that it first had.
    root = click.Context(cli, **cli.context_settings)
    command = cli.get_command(root, name)
    assert command is not None, name
    command.make_context(name, rest, parent=root)


def test_the_commands_of_the_containers_exist(monkeypatch):
    command = re.search(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    service = yaml.safe_load(COMPOSE.read_text())["services"]["retriever"]
    assert yaml.safe_load(command[1]) == service["command"]
    check_command(service["command"])
    for arguments in re.findall(r"retriever (index .*)", COMPOSE.read_text()):
        check_command(shlex.split(arguments))
    extras = set(service["build"]["args"]["EXTRAS"].split(","))
    assert extras >= set(re.search(r"ARG EXTRAS=(.*)", DOCKERFILE)[1].split(","))
    offered = re.findall(r'^    "([a-z-]+)": \[', (ROOT / "setup.py").read_text(), re.MULTILINE)
    assert extras <= set(offered)


def test_compose_uses_a_documented_postgresql_and_publishes_ports_on_localhost_only():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    major = services["database"]["image"].removeprefix("pgvector/pgvector:pg")
    assert f"With PostgreSQL {major}." in (ROOT / "docs/reference/stores.md").read_text()
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_citation_has_the_version_of_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
