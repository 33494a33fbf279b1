"""What Linux, macOS and Windows do differently is in `indexes/platforms.py` and nowhere else."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("indexes", "retriever", "eval", "cli", "model")
PLATFORMS = ROOT / "indexes/platforms.py"
# Modules that one of the systems lacks.
MODULES = {
    *("fcntl", "grp", "msvcrt", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"),
    *("winreg", "winsound", "_winapi", "multiprocessing.resource_tracker"),
}
# Attributes that one lacks, or that do something else there. `os.open` takes folders on Linux.
ATTRIBUTES = {
    "mmap": {"MADV_NORMAL", "MADV_RANDOM", "MADV_WILLNEED", "MAP_PRIVATE", "MAP_SHARED"},
    "multiprocessing": {"Pool", "Process", "set_start_method"},
    "os": {
        *("O_BINARY", "O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK"),
        *("chown", "fchmod", "fork", "forkpty", "geteuid", "getloadavg", "getuid", "kill"),
        *("killpg", "mkfifo", "name", "nice", "posix_fadvise", "pread", "pwrite", "rename"),
        *("register_at_fork", "replace", "sched_getaffinity", "sched_setaffinity", "sendfile"),
        *("setsid", "statvfs", "sysconf", "uname", "wait", "waitpid"),
    },
    "signal": {
        *("ITIMER_REAL", "SIGALRM", "SIGBREAK", "SIGHUP", "SIGKILL", "SIGTERM", "SIGUSR1"),
        *("alarm", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait"),
    },
    "socket": {"AF_UNIX", "SO_REUSEPORT"},
    "sys": {"getwindowsversion", "platform"},
    "time": {"tzset"},
}
KEYWORDS = {"dir_fd", "pass_fds", "preexec_fn", "process_group", "start_new_session"}
PATHS = ("/bin/", "/dev/", "/etc/", "/proc/", "/sys/", "/tmp/", "/usr/", "/var/", "C:\\")
START = "spawn"


def differences(source):
    """List what a module uses that differs between systems, each with its line."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if hasattr(node, "body") and isinstance(node.body, list) and node.body
        if isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
    }
    return [
        f"{node.lineno}: {use}"
        for node in ast.walk(tree)
        if id(node) not in docstrings
        for use in _uses(node)
    ]


def _uses(node):
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in MODULES)
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        names = {alias.name for alias in node.names}
        yield from {node.module} & MODULES
        yield from {f"{node.module}.{name}" for name in names} & MODULES
        yield from names & ATTRIBUTES.get(node.module, set())
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield from {node.attr} & ATTRIBUTES.get(node.value.id, set())
    elif isinstance(node, ast.keyword):
        yield from {node.arg} & KEYWORDS
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from [node.value] if node.value.startswith(PATHS) else []
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        function = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        arguments = [ast.unparse(argument) for argument in node.args]
        if function in ("getattr", "hasattr") and arguments[0] in ATTRIBUTES:
            yield from {arguments[1].strip("'")} & ATTRIBUTES[arguments[0]]
        elif function == "get_context" and arguments != [repr(START)]:
            yield f"a start of processes that is not {START}"


def test_only_the_module_of_platforms_uses_what_differs_between_systems():
    paths = [path for package in PRODUCT for path in sorted((ROOT / package).rglob("*.py"))]
    places = [
        f"{path.relative_to(ROOT)}:{use}"
        for path in paths
        if path != PLATFORMS
        for use in differences(path.read_text("utf-8"))
    ]
    assert not places, "\n".join(["use indexes/platforms.py:", *places])


@pytest.mark.parametrize(
    "source",
    [
        "import fcntl",
        "def lock():\n    import msvcrt",
        "from fcntl import flock",
        "from os import fork",
        "from multiprocessing import resource_tracker",
        "os.fork()",
        "os.rename(first, second)",
        "hasattr(os, 'pread')",
        "getattr(os, 'O_BINARY', 0)",
        "signal.signal(signal.SIGTERM, end)",
        "if sys.platform == 'win32': pass",
        "if os.name == 'nt': pass",
        "os.open(name, flags, dir_fd=folder)",
        "subprocess.Popen(words, start_new_session=True)",
        "multiprocessing.get_context('fork')",
        "multiprocessing.get_context()",
        "multiprocessing.Process(target=work)",
        "path = f'/dev/fd/{number}'",
        "path = '/proc/cpuinfo'",
    ],
)
def test_each_use_that_differs_between_systems_is_reported(source):
    assert len(differences(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from importlib import resources",
        "text.replace(old, new)",
        "'''/dev/null is no file.'''",
        "multiprocessing.get_context('spawn')",
        "os.open(path, os.O_RDONLY)",
    ],
)
def test_a_use_that_is_the_same_everywhere_is_not_reported(source):
    assert differences(source) == []
