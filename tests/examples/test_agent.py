"""The commands and settings of `examples/agent` work."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[2] / "examples/agent"


def test_the_commands_of_the_skill_run(retriever, fake_encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path / "cache"))
    guide = tmp_path / "notes/guide"
    guide.mkdir(parents=True)
    (guide / "backups.md").write_text("# Backups\n\nBackups are kept for 30 days.\n")
    _, header, text = (FOLDER / "SKILL.md").read_text().split("---\n", 2)
    fields = yaml.safe_load(header)
    assert set(fields) == {"name", "description"}
    assert len(fields["description"]) <= 1024
    commands = "".join(re.findall(r"^```\n(.*?)^```", text, re.M | re.S)).splitlines()
    assert len(commands) == 6
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "retriever"
        # The server waits for a client.
        done = retriever(*arguments, *(["--help"] if arguments[0] == "mcp" else []))
        assert done.code == 0, (command, done.err)
        if arguments[0] == "query":
            hit = json.loads(done.out.splitlines()[0])
            assert hit["id"] == "guide/backups.md"
            assert hit["place"]["lines"]
            assert "30 days" in hit["passage"]


@pytest.mark.parametrize(("name", "key"), [("mcp.json", "mcpServers"), ("vscode.json", "servers")])
def test_server_commands_in_client_settings_are_valid(retriever, name, key):
    (server,) = json.loads((FOLDER / name).read_text())[key].values()
    assert server["command"] == "retriever"
    assert server["args"][0] == "mcp"
    assert retriever(*server["args"], "--help").code == 0
