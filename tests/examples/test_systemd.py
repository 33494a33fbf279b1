"""The units of `examples/systemd` are valid, and start commands that exist."""

import inspect
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cli.main import cli

FOLDER = Path(__file__).resolve().parents[2] / "examples/systemd"
PROGRAM = "/opt/retriever/bin/retriever"
SERVICES = sorted(FOLDER.glob("*.service"))


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
def test_units_are_valid(tmp_path):
    units = []
    for file in FOLDER.iterdir():
        units.append(tmp_path / file.name)
        units[-1].write_text(file.read_text().replace(PROGRAM, sys.executable))
    # The timer names a service, which systemd looks for in these folders.
    done = subprocess.run(
        ["systemd-analyze", "verify", *units],
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    named = [line for line in done.stderr.splitlines() if "retriever" in line]
    assert (done.returncode, named) == (0, []), done.stderr


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.name)
def test_commands_of_units_exist(service):
    text = service.read_text().replace("\\\n", " ")
    commands = re.findall(rf"{PROGRAM} ([^'\n]*)", text)
    assert len(commands) == text.count(PROGRAM) > 0
    root = click.Context(cli, **cli.context_settings)
    for line in commands:
        name, *arguments = shlex.split(line)
        cli.get_command(root, name).make_context(name, arguments, parent=root)


def test_service_has_time_to_end_its_requests():
    serving = pytest.importorskip("retriever.service.serving")
    (seconds,) = re.findall(
        r"^TimeoutStopSec=(\d+)$", (FOLDER / "retriever.service").read_text(), re.M
    )
    drain = inspect.signature(serving.create_server).parameters["drain"].default
    assert int(seconds) > drain
