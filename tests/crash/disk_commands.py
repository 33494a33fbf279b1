"""Commands that change an index or copy it, run against a disk that fails, and what they may leave.

Every command runs in a forked process, in a folder that holds ``index`` and what it reads.
"""

import contextlib
import io
import json
import os

from answers import before, contents
from forked import in_child
from workload import SWEPT

from cli.main import run
from indexes.folder.verify import verify
from retriever.index import Index

CHANGED = {"index": SWEPT["add"], "small": SWEPT["small"], "import": SWEPT["add"]}
DELETED = SWEPT["delete"].gone
COMMANDS = {
    "index": ["index", "changed.jsonl", "--quiet"],
    "small": ["index", "small.jsonl", "--existing", "--quiet"],
    "delete": ["delete", *DELETED],
    "compact": ["compact"],
    "rebuild": ["compact", "--index-type", "IVF8,SQ8"],
    "import": ["import", "ready.jsonl", "--model", "fake", "--quiet"],
    "snapshot": ["snapshot", "copy", "--quiet"],
    "jsonl": ["export", "out.jsonl", "--vectors", "--quiet"],
    "npy": ["export", "out.npy", "--quiet"],
}
OUTPUTS = {
    "snapshot": ["copy"],
    "jsonl": ["out.encoder.json", "out.jsonl"],
    "npy": ["out.encoder.json", "out.ids.jsonl", "out.npy"],
}


def write_sources(place):
    """Write the files that the commands read."""
    for name, operation in (("changed", SWEPT["add"]), ("small", SWEPT["small"])):
        lines = [
            {"id": id_, "text": text, "version": version, "number": int(id_[1:])}
            for id_, (text, version) in operation.put.items()
        ]
        (place / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    lines = [json.loads(line) for line in (place / "changed.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines):
        line["vector"] = [float(place == number) for place in range(256)]
    (place / "ready.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def attempt(place, name, arrange):
    """Run a command in `place`, after `arrange`.

    Returns the exit code, what it said on stderr, and the length in the end of what `arrange` gave.
    """

    def command():
        os.chdir(place)
        met = arrange()
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([*COMMANDS[name], "-i", "index"])
        return [code, err.getvalue(), 0 if met is None else len(met)]

    status, told = in_child(command)
    assert status == 0, told
    return int(told[0]), str(told[1]), int(told[2])


def check_refusal(code, said):
    """It is one clear line, with the exit code of a full or failing disk."""
    line = said.splitlines()[-1]
    assert code == 2, said
    assert line.startswith("retriever: "), said
    assert "the disk" in line, said
    assert "Traceback" not in said
    assert len([one for one in said.splitlines() if one.startswith("retriever:")]) == 1


def check_index(place, name, left=0):
    """The index is unchanged, or as the command leaves it, and holds no useless files.

    The next writer may have to remove `left` complete segments: if SQLite could not commit, it is
    unknown whether it finds the commit when it reopens its log.
    """
    assert verify(place / "index") == []
    with Index.open(place / "index") as index:
        assert contents(index) in (before(), after(name))
        live = {f"{segment['segment']:06d}" for segment in index.info()["segments"]}
    names = {path.name for path in (place / "index" / "segments").iterdir()}
    assert live <= names
    assert len(names - live) <= left


def check_outputs(place, name):
    """Nothing is left but files and folders that are complete."""
    found = {path.name for path in place.iterdir()}
    assert found <= {"index", "changed.jsonl", "small.jsonl", "ready.jsonl", *OUTPUTS.get(name, ())}
    if "copy" in found:
        assert verify(place / "copy") == []
    if "out.jsonl" in found:
        lines = (place / "out.jsonl").read_text().splitlines()
        assert [json.loads(line)["id"] for line in lines] == sorted(before())
        assert (place / "out.encoder.json").exists()


def check_done(place, name):
    """The command has done all that it is for."""
    check_outputs(place, name)
    assert verify(place / "index") == []
    with Index.open(place / "index") as index:
        assert contents(index) == after(name)
    assert all((place / output).exists() for output in OUTPUTS.get(name, ()))


def after(name):
    """What the index holds after a command."""
    if name in CHANGED:
        return CHANGED[name].steps(before())[-1]
    return SWEPT["delete"].steps(before())[-1] if name == "delete" else before()
