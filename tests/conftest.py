"""What many tests share: signers, a log over each storage, the Spark session, and groups that run in one process."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

import gossiplog
from gossiplog import Log, MemoryStorage, Signer
from gossiplog.log import blocking
from gossiplog.net.garbage import collect_rarely
from gossiplog.storage.sqlite import files
from tests import postgres
from tests.asyncio_run import without_library
from tests.groups import Groups, sample
from tests.places import Place
from tests.postgres import Server
from tests.workers import Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same examples on every run; `make check` tries fewer: see `repeatable` of tests/strategies.py.
settings.register_profile("standard", derandomize=True, database=None, deadline=None)
settings.register_profile("quick", settings.get_profile("standard"), max_examples=20)
settings.load_profile("standard")

TOPIC = "org.example.test"
CORES = ("gossiplog._core", "gossiplog.reference")
MOST_OF_A_PARAMETER = 60
POSTGRES = pytest.param("postgres", marks=pytest.mark.server_storage)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=1, help="run groups of tests in so many processes")
    parser.addoption("--sample", action="store_true", help="run a few cases of each test, as `make check` does")


def pytest_configure(config: pytest.Config) -> None:
    """Run tests that share something in one process, and report what they take."""
    config.pluginmanager.register(Groups())
    workers = config.getoption("workers")
    if workers > 1:
        config.pluginmanager.register(Workers(workers))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark what uses the session of Spark, run async tests as `asyncio.run` does, and sample where that is asked for.

    Whatever runs in the session starts Java, and may have to wait for it on a busy machine.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(900))
    without_library(items)
    yield
    if config.getoption("sample"):
        kept = sample(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a long parameter by its beginning: processes that a test starts have its name in their environment."""
    if not isinstance(val, (str, bytes)) or len(val) <= MOST_OF_A_PARAMETER:
        return None
    beginning = val[:MOST_OF_A_PARAMETER]
    text = beginning if isinstance(beginning, str) else beginning.decode("latin-1")
    return f"{text.encode('unicode_escape').decode()} and so on to {len(val)}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Collect no garbage while all is imported and collected that stays: a tenth of the time."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exempt what was imported and collected from garbage collections: each would look through it for 0.25 s.

    With Python's own thresholds the tests take a twentieth longer.
    """
    collect_rarely()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: Any) -> None:
    """Unlock the folder of this run's files before pytest removes it.

    pytest does so afterwards, when a run that begins may have made a folder of that name: its lock was removed, the
    next run that cleaned up took the folder for abandoned, and all later tests with files failed in their set-up.
    """
    session.config._tmp_path_factory._exit_stack.close()


@pytest.fixture(scope="session", autouse=True)
def _no_leaks() -> Iterator[None]:
    """Have what was left open found in the last test of a process: nobody reports what is found later."""
    yield
    gc.collect()


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Restore the handlers that child processes inherit: a shell ignores SIGINT in background jobs, nohup SIGHUP."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def _buffered() -> None:
    """Have programs write into pipes as they do for users: containers often switch the buffer off, by a variable."""
    os.environ.pop("PYTHONUNBUFFERED", None)


@pytest.fixture(autouse=True)
def _each_test_is_warned() -> None:
    """Warn of a blocking call on an event loop in each test, which is an error there, and not in the first alone."""
    blocking._warned.clear()


@pytest.fixture(params=[pytest.param("trio", marks=pytest.mark.second_loop), "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of a coroutine's test: both, one after the other."""
    return str(request.param)


@pytest.fixture
def signer() -> Signer:
    return Signer(bytes(32))


@pytest.fixture
def other_signer() -> Signer:
    return Signer(b"\1" * 32)


@pytest.fixture
def port() -> Iterator[int]:
    """A port that the system gives to no other process; nobody listens on it until the test does."""
    with socket.socket() as reserved:
        # Two sockets may be bound to one port where both set this and neither listens yet.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@pytest.fixture(params=CORES)
def core(request: pytest.FixtureRequest) -> ModuleType:
    """Either core."""
    return importlib.import_module(request.param)


@pytest.fixture(scope="session")
def rust() -> ModuleType:
    return importlib.import_module(CORES[0])


@pytest.fixture(params=["memory", "sqlite", "sqlite-memory", POSTGRES])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """One place for a log of each kind; opening it twice opens the same log, but for ":memory:"."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return {"memory": MemoryStorage(), "sqlite": tmp_path / "log.db", "sqlite-memory": ":memory:"}[request.param]


@pytest.fixture
def postgres_server() -> Server:
    """The server of Postgres of all tests, for those that leave it running and its settings alone."""
    return postgres.shared_server()


@pytest.fixture
def new_postgres_url(postgres_server: Server) -> Iterator[Callable[[], str]]:
    """Returns URLs of schemas that do not exist, and drops these after the test."""
    with ExitStack() as stack:
        yield lambda: postgres_server.url(stack.enter_context(postgres.schema_of(postgres_server)))


@pytest.fixture
def postgres_url(new_postgres_url: Callable[[], str]) -> str:
    """The URL of a schema that does not exist yet."""
    return new_postgres_url()


@pytest.fixture
def own_postgres() -> Iterator[Callable[..., Server]]:
    """Starts servers of Postgres that a test stops, breaks or follows; `settings` are those of postgresql.conf."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(postgres.own_server(**settings))


@pytest.fixture(params=["sqlite", POSTGRES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place for a log with an application's tables; nothing is there yet."""
    is_postgres = request.param == "postgres"
    return Place(request.getfixturevalue("postgres_url") if is_postgres else tmp_path / "log.db")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Log]]:
    """Opens logs, in memory by default, and closes them after the test, before its folder is removed."""
    with ExitStack() as stack:

        def open_log(location: Any = ":memory:", topic: str | None = TOPIC, **options: Any) -> Log:
            return stack.enter_context(gossiplog.open(location, topic, **options))

        yield open_log


@pytest.fixture
def log(location: Any, signer: Signer, opened: Callable[..., Log]) -> Log:
    """An empty log over each storage."""
    return opened(location, signer=signer)


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder of Spark's processes."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_folder: Path) -> Iterator[SparkSession]:
    """The session of all tests, in the one Java process that they start."""
    from tests.spark.shared import start

    running = start(spark_folder)
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def _each_commit_looks_at_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each commit check that its files still have their names: tests take these away at once."""
    monkeypatch.setattr(files, "_TRUSTED_NANOSECONDS", 0)


@pytest.fixture(autouse=True)
def _spark_settings_end_with_the_test(request: pytest.FixtureRequest) -> Iterator[None]:
    if "spark" not in request.fixturenames:
        yield
        return
    from tests.spark.shared import isolated

    with isolated(request.getfixturevalue("spark")):
        yield


@pytest.fixture
def workplace(spark: SparkSession, spark_folder: Path) -> Iterator[Path]:
    """The working folder of Spark's processes, for a test that works in it: empty, and emptied afterwards."""
    yield spark_folder
    for path in spark_folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
