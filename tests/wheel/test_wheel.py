"""The built wheel, installed into an environment of its own, used by a user who has no checkout.

The environment is made with pip, from the declared dependencies: it proves that they are enough.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import pytest

from lab.cli import packages
from tests.lab.connect.servers import free_port, http_server
from tests.pages import HOW_TOS, TUTORIAL, blocks
from tests.wheel import how_tos, kernels
from tests.wheel.waiting import CLIENT

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
KEPT = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TWINBED"))}
"""The environment without what leads to a checkout."""
LONGEST_S = 500
"""Longest time of the commands of a test on a busy machine, s. Alone they take seconds."""
PAGES = {
    page.stem: [block.text for block in blocks(page) if block.language == "sh"]
    for page in (TUTORIAL, *HOW_TOS.glob("*.md"))
}
"""The blocks that every user can run, by page."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False, env=KEPT)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def home():
    """Return a folder that every user may enter. Pytest closes its own folders to others whenever a session
    begins."""
    with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def runs_as(user: list[str], python: str) -> bool:
    asked = [*user, "/bin/sh", "-c", f"{python} -c 'import sys; print(sys.version_info[:2])'"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False, env=KEPT)
    return answer.stdout.strip() == str(sys.version_info[:2])


@pytest.fixture(scope="module")
def user() -> list[str]:
    """Return the words that run a command as a user without rights; none if this user already has no
    rights."""
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []


@pytest.fixture(scope="module")
def installed(wheel, user, home) -> Path:
    """Return the folder `bin` of a fresh environment with the wheel and its extra `explorer`."""
    # Another user cannot use an interpreter below root's home, but can use Debian's own.
    pythons = [str(Path(sys.base_prefix) / "bin" / "python3"), "/usr/bin/python3"]
    python = next((path for path in pythons if runs_as(user, path)), None)
    if python is None:
        pytest.skip(f"no user without rights can run any of {', '.join(pythons)}")
    subprocess.run([python, "-m", "venv", "--without-pip", str(home / "venv")], check=True, env=KEPT)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "venv" / "bin" / "python")]
    asked = ["install", "--quiet", "--no-compile", "-c", str(ROOT / "constraints.txt"), f"{wheel}[explorer]"]
    subprocess.run([*pip, *asked], check=True, env=KEPT)
    (site,) = (home / "venv" / "lib").glob("python*/site-packages")
    kernels.hand_over(ROOT, site, home / "user")
    return home / "venv" / "bin"


def at_home(home: Path) -> dict[str, str]:
    """Return the environment of the one user whose commands all are. The user compiles each thing once."""
    folder = home / "user"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    # Several threads of linear algebra would wait for each other on a busy machine.
    threads = {"OMP_NUM_THREADS": "1"}
    return {"HOME": str(folder), "PYTHONPYCACHEPREFIX": str(folder / "compiled"), **threads}


@pytest.fixture
def bash(installed, user, home):
    """Return a function that runs a text in bash as a user without the checkout. Its `folder` is empty at
    first."""
    own = Path(tempfile.mkdtemp(dir=home))
    own.chmod(0o777)
    # Files that a command leaves for later commands of the same page are not visible to other pages.
    kept = {"TWINBED_STORE": str(own / "runs"), "XDG_DATA_HOME": str(own / "data")}
    path = {"PATH": f"{installed}:{KEPT['PATH']}"}

    def run(text: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*user, "timeout", str(LONGEST_S), "bash", "-euo", "pipefail", "-c", text, *arguments],
            cwd=own,
            env=KEPT | at_home(home) | kept | path | more,
            capture_output=True,
            text=True,
            check=False,
        )

    run.folder = own
    return run


@pytest.fixture
def twinbed(bash):
    """Return a function that runs `twinbed` from bash."""
    return lambda *arguments: bash('"$@"; exit $?', "bash", "twinbed", *arguments)


@pytest.fixture(scope="module")
def waiting(installed, user, home):
    """Return a folder with a program `twinbed` that runs the installed one in forks of a process."""
    folder = home / "waiting"
    folder.mkdir()
    folder.chmod(0o777)
    shutil.copy(Path(__file__).with_name("waiting.py"), folder)
    client = folder / "twinbed"
    client.write_text(CLIENT.format(python=installed / "python", path=str(folder / "socket")))
    client.chmod(0o755)
    command = [*user, installed / "python", folder / "waiting.py", folder / "socket"]
    with subprocess.Popen(command, env=KEPT | at_home(home), cwd=folder, start_new_session=True) as server:
        try:
            while not (folder / "socket").exists():
                assert server.poll() is None
                time.sleep(0.05)
            yield folder
        finally:
            os.killpg(server.pid, signal.SIGKILL)


@pytest.fixture
def forked(bash, waiting):
    """Return a function that runs `twinbed` from bash, without the time of its start."""
    return lambda *arguments: bash(f'PATH={waiting}:$PATH; "$@"; exit $?', "bash", "twinbed", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("whatif", "bursty_service", "--policy", "escra,static"),
        ("run", "hipster_shop", "--set", "services.duration_s=2", "--set", "policies=[escra]"),
        ("--show-completion", "bash"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_the_program_starts_without_a_checkout(twinbed, arguments):
    ended = twinbed(*arguments)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


@pytest.mark.parametrize("arguments", ["recommend images_cnn", "traces list", "controller monitoring"])
def test_verbs_find_what_they_need_without_a_checkout(forked, arguments):
    ended = forked(*arguments.split())
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


@pytest.mark.parametrize("page", sorted(page for page, texts in PAGES.items() if texts))
def test_the_commands_of_a_page_work_as_they_stand(bash, waiting, page):
    how_tos.FILES.get(page, lambda folder: None)(bash.folder)
    with http_server(how_tos.prometheus()) as url:
        text = "\n".join(PAGES[page]).replace(how_tos.SERVER, url)
        ended = bash(f"PATH={waiting}:$PATH\nset -x\n{text}", URL=url)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    if page == "tutorial":
        assert (bash.folder / "report.html").read_text().startswith("<!doctype html>")


def test_a_how_to_without_commands_for_every_user_says_why():
    assert {page for page, texts in PAGES.items() if not texts} == set(how_tos.NOT_HERE)


def test_the_explorer_starts_and_listens_on_this_machine_only(twinbed):
    ended = twinbed("explore", "--check", "--port", str(free_port()))
    assert ended.returncode == 0, ended.stderr
    assert "healthy at http://127.0.0.1:" in ended.stdout


def test_the_doctor_says_what_this_user_may_not_do(forked):
    ended = forked("testbed", "doctor")
    assert ended.returncode in (0, 1), ended.stderr
    assert "container testbed" in ended.stdout


def test_a_missing_extra_is_named(forked):
    ended = forked("predict", "train")
    assert ended.returncode == 2
    assert "pip install 'twinbed[cloud]'" in ended.stderr


def test_the_version_is_the_wheels(twinbed, wheel):
    version = wheel.name.split("-")[1]
    assert twinbed("--version").stdout.split() == ["twinbed", version]


def test_what_ships_beside_the_code_is_in_the_wheel(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(
        ["git", "ls-files", *packages.NAMES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    ships = re.compile(r".*\.(c|csv|jinja|json|parquet|py|toml|yaml)$")
    assert {path for path in tracked.stdout.split() if ships.match(path)} <= inside
    assert not [path for path in inside if path.startswith(("studies/", "tests/", "docs/"))]


def test_another_distribution_that_owns_one_of_our_names_is_told_of(tmp_path):
    other = tmp_path / "control-0.10.1.dist-info"
    other.mkdir()
    (other / "top_level.txt").write_text("control\n")
    (tmp_path / "twinbed-1.0.dist-info").mkdir()
    assert packages.strangers(tmp_path) == ["control also installs 'control'"]
