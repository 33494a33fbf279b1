"""A disk that refuses a step, or is full: one line, nothing is lost, and later commands work."""

import errno
import os
import resource
import shutil
import signal
import subprocess

import pytest
import steps
from answers import make
from disk_commands import (
    COMMANDS,
    attempt,
    check_done,
    check_index,
    check_outputs,
    check_refusal,
    write_sources,
)

pytestmark = pytest.mark.usefixtures("crash_encoder")

CODES = (errno.EIO, errno.ENOSPC)


@pytest.fixture(scope="module")
def template(crash_encoder, tmp_path_factory):
    place = tmp_path_factory.mktemp("template")
    make(place / "index")
    write_sources(place)
    return place


def failing_at(number, code, kinds):
    """Makes the step with this number among these kinds fail; returns the steps so far."""

    def arrange():
        met = []

        def step(kind, subject):
            if kind in kinds:
                met.append(f"{kind} {subject}")
                if len(met) == number:
                    raise OSError(code, os.strerror(code), None if kind == "fsync" else subject)

        steps.watch(step)
        return met

    return arrange


def is_refused(place, name, arrange, left=0, *, cleared=lambda: None):
    """Attempt a command and, where it is refused, once more after `cleared`; the steps met."""
    code, said, met = attempt(place, name, arrange)
    cleared()
    check_outputs(place, name)
    if code:
        check_refusal(code, said.replace("the file would be too large", "the disk"))
        check_index(place, name, left)
        assert attempt(place, name, lambda: None)[0] == 0
    check_done(place, name)
    return code != 0, met


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
def test_a_step_that_the_disk_refuses(template, tmp_path, name, kinds):
    failed, number, met = 0, 0, 0
    while met >= number:
        number += 1
        place = tmp_path / str(number)
        shutil.copytree(template, place)
        refused, met = is_refused(place, name, failing_at(number, CODES[number % 2], kinds))
        failed += refused
        shutil.rmtree(place)
    # These open the lock alone by themselves: the rest is SQLite's.
    assert failed > 2 or name in ("small", "delete")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    "limits",
    [(0, 5_000), pytest.param((0, 300, 5_000, 20_000, 60_000, 100_000), marks=pytest.mark.soak)],
    ids=["some", "all"],
)
def test_files_that_may_not_grow(template, tmp_path, name, limits):
    """The limit replaces a full disk where no small one can be mounted."""
    failed = 0
    for limit in limits:
        place = tmp_path / str(limit)
        shutil.copytree(template, place)

        def arrange(to=limit):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (to, to))

        failed += is_refused(place, name, arrange, left=1)[0]
    assert failed > 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system of four megabytes."""
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
def test_a_full_disk(template, small_disk, name, frees):
    filler, failed = small_disk / "filler", 0
    for free in frees:
        place = small_disk / str(free)
        shutil.copytree(template, place)
        filler.write_bytes(bytes(max(shutil.disk_usage(small_disk).free - free, 0)))
        failed += is_refused(place, name, lambda: None, left=1, cleared=filler.unlink)[0]
        shutil.rmtree(place)
    assert failed > 1
