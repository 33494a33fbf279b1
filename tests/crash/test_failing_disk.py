"""A disk that refuses a step, or is full: one line, nothing is lost, and later commands work.

Every command runs in a forked process, in a folder that holds ``index`` and what it reads.
"""

import contextlib
import errno
import io
import json
import os
import shutil
import subprocess

import pytest

from cli.main import run
from indexes.folder.verify import verify
from retriever.index import Index
from tests.crash import steps
from tests.crash.forked import in_child
from tests.crash.workload import SWEPT, before, contents, make

pytestmark = pytest.mark.usefixtures("crash_encoder")

CODES = (errno.EIO, errno.ENOSPC)
# What the commands that change the index leave in it.
CHANGES = {
    "index": SWEPT["add"],
    "small": SWEPT["small"],
    "import": SWEPT["add"],
    "delete": SWEPT["delete"],
}
COMMANDS = {
    "index": ["index", "changed.jsonl", "--quiet"],
    "small": ["index", "small.jsonl", "--existing", "--quiet"],
    "delete": ["delete", *SWEPT["delete"].deleted_ids],
    "compact": ["compact"],
    "rebuild": ["compact", "--index-type", "IVF8,SQ8"],
    "import": ["import", "ready.jsonl", "--model", "fake", "--quiet"],
    "snapshot": ["snapshot", "copy", "--quiet"],
    "jsonl": ["export", "out.jsonl", "--vectors", "--quiet"],
    "npy": ["export", "out.npy", "--quiet"],
}
OUTPUTS = {
    "snapshot": {"copy"},
    "jsonl": {"out.encoder.json", "out.jsonl"},
    "npy": {"out.encoder.json", "out.ids.jsonl", "out.npy"},
}
SOURCES = ("changed.jsonl", "small.jsonl", "ready.jsonl")


@pytest.fixture(scope="module")
def template(crash_encoder, tmp_path_factory):
    place = tmp_path_factory.mktemp("template")
    make(place / "index")
    for name, kind in zip(SOURCES, ("add", "small", "add"), strict=True):
        lines = [
            {"id": id_, "text": text, "version": version, "number": int(id_[1:])}
            for id_, (text, version) in SWEPT[kind].put.items()
        ]
        for number, line in enumerate(lines if name == "ready.jsonl" else ()):
            line["vector"] = [float(at == number) for at in range(256)]
        (place / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


def attempt(place, name, arrange=lambda: None):
    """Run a command in `place`, after `arrange`.

    Returns the exit code, what it said on stderr, and the length in the end of what `arrange` gave.
    """

    def command():
        os.chdir(place)
        steps_met = arrange()
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([*COMMANDS[name], "-i", "index"])
        return [code, err.getvalue(), 0 if steps_met is None else len(steps_met)]

    status, outcome = in_child(command)
    assert status == 0, outcome
    return outcome


def check_outputs(place, name):
    """Assert that all outputs are complete, and return their names."""
    names = {path.name for path in place.iterdir()} - {"index", *SOURCES}
    assert names <= OUTPUTS.get(name, set())
    if "copy" in names:
        assert verify(place / "copy") == []
    if "out.jsonl" in names:
        lines = (place / "out.jsonl").read_text().splitlines()
        assert [json.loads(line)["id"] for line in lines] == sorted(before())
        assert (place / "out.encoder.json").exists()
    return names


def check_index(place, *allowed, left=0):
    """Assert that the index is sound, has one of these contents, and holds no useless files.

    The next writer may have to remove `left` complete segments: if SQLite could not commit, it is
    unknown whether it finds the commit when it reopens its log.
    """
    assert verify(place / "index") == []
    with Index.open(place / "index") as index:
        assert contents(index) in allowed
        live = {f"{segment['segment']:06d}" for segment in index.info()["segments"]}
    names = {path.name for path in (place / "index" / "segments").iterdir()}
    assert live <= names
    assert len(names - live) <= left


def is_refused(place, name, arrange, left=0, *, cleared=lambda: None):
    """Attempt a command and, if it is refused, again after `cleared`.

    Returns whether it was refused and how many steps it met.
    """
    code, stderr, steps_met = attempt(place, name, arrange)
    cleared()
    check_outputs(place, name)
    done = CHANGES[name].steps(before())[-1] if name in CHANGES else before()
    if code:
        # One clear line, with the exit code of a full or failing disk.
        (line,) = [row for row in stderr.splitlines() if row.startswith("retriever:")]
        assert (code, line) == (2, stderr.splitlines()[-1]), stderr
        assert "the disk" in line
        assert "Traceback" not in stderr
        check_index(place, before(), done, left=left)
        assert attempt(place, name)[0] == 0
    assert check_outputs(place, name) == OUTPUTS.get(name, set())
    check_index(place, done)
    return code != 0, steps_met


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.soak] * (name not in ("small", "delete")))
        for name in COMMANDS
    ],
)
@pytest.mark.parametrize(
    "kinds", [("fsync",), ("open", "os.link", "os.mkdir", "os.rename")], ids=["fsync", "names"]
)
def test_command_whose_disk_step_fails_is_one_line_and_can_be_repeated(
    template, tmp_path, name, kinds
):
    failed, number, steps_met = 0, 0, 0

    def failing():
        """Let the step with this number among these kinds fail; return the steps so far."""
        seen = []

        def step(kind, subject):
            if kind in kinds:
                seen.append(kind)
                if len(seen) == number:
                    code = CODES[number % 2]
                    raise OSError(code, os.strerror(code), None if kind == "fsync" else subject)

        steps.watch(step)
        return seen

    while steps_met >= number:
        number += 1
        place = tmp_path / str(number)
        shutil.copytree(template, place)
        refused, steps_met = is_refused(place, name, failing)
        failed += refused
        shutil.rmtree(place)
    # These open the lock alone by themselves: the rest is SQLite's.
    assert failed > 2 or name in ("small", "delete")


@pytest.fixture
def small_disk(tmp_path):
    """The folder of a mounted file system of four megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("mounting a small file system needs root")
    command = [mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    "frees",
    [
        (0, 20_480, 163_840),
        pytest.param((0, 4_096, 20_480, 40_960, 81_920, 163_840), marks=pytest.mark.soak),
    ],
    ids=["some", "all"],
)
def test_command_on_a_full_disk_is_one_line_and_can_be_repeated(template, small_disk, name, frees):
    filler, failed = small_disk / "filler", 0
    for free in frees:
        place = small_disk / str(free)
        shutil.copytree(template, place)
        filler.write_bytes(bytes(max(shutil.disk_usage(small_disk).free - free, 0)))
        failed += is_refused(place, name, lambda: None, left=1, cleared=filler.unlink)[0]
        shutil.rmtree(place)
    assert failed > 1
