"""A disk that refuses a step, or is full: one line, nothing is lost, and later commands work."""

import errno
import os
import resource
import shutil
import signal
import subprocess

import pytest
import steps
from disk_commands import (
    COMMANDS,
    attempt,
    check_done,
    check_index,
    check_outputs,
    check_refusal,
    write_sources,
)
from structured import make

pytestmark = pytest.mark.usefixtures("hash_encoder")

CODES = (errno.EIO, errno.ENOSPC)


@pytest.fixture(scope="module")
def template(hash_encoder, tmp_path_factory):
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
        code, said, met = attempt(place, name, failing_at(number, CODES[number % 2], kinds))
        check_outputs(place, name)
        if code == 0:
            check_done(place, name)
        else:
            failed += 1
            check_refusal(code, said)
            check_index(place, name)
            if number % 3 == 1:
                assert attempt(place, name, lambda: None)[0] == 0
                check_done(place, name)
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

    def limited(to):
        def arrange():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (to, to))

        return arrange

    failed = 0
    for limit in limits:
        place = tmp_path / str(limit)
        shutil.copytree(template, place)
        code, said, _ = attempt(place, name, limited(limit))
        check_outputs(place, name)
        if code:
            failed += 1
            check_refusal(code, said.replace("the file would be too large", "the disk"))
            check_index(place, name, left=1)
            assert attempt(place, name, lambda: None)[0] == 0
        check_done(place, name)
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
        code, said, _ = attempt(place, name, lambda: None)
        filler.unlink()
        check_outputs(place, name)
        if code:
            failed += 1
            check_refusal(code, said)
            check_index(place, name, left=1)
            assert attempt(place, name, lambda: None)[0] == 0
        check_done(place, name)
        shutil.rmtree(place)
    assert failed > 1
