"""What the folders of repair sets are called."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from hypothesis import assume, example, given
from hypothesis import strategies as st

from gossiplog.spark.jobs.repair_names import SUMMARY, hub_names, set_names

_PARTS = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6).filter(
    lambda part: part not in (".", "..")
)
_PATHS = st.lists(_PARTS, min_size=1, max_size=4).map(lambda parts: "/data/" + "/".join(parts))
_URLS = st.builds(
    "{}/{}/{}".format,
    st.sampled_from(["s3://a", "s3://b", "hdfs://name:8020", "postgresql://me@host"]),
    st.sampled_from(["x", "y/z"]),
    st.sampled_from(["orders.db", "chat.db", "orders.db?schema=a"]),
)


def test_hubs_that_name_files_alike() -> None:
    logs = [f"fleet/{hub}/orders.db" for hub in ("ams", "ber", "fra")]
    assert set_names(logs) == ["ams/orders.db", "ber/orders.db", "fra/orders.db"]
    assert hub_names(logs) == [("ams", "orders.db"), ("ber", "orders.db"), ("fra", "orders.db")]
    assert hub_names(["/a/eu/ber/x.db", "/a/us/x.db", "/a/y.db"]) == [("eu-ber", "x.db"), ("us", "x.db"), ("a", "y.db")]
    # A hub that is called as the folder of all.
    assert hub_names(["/a/x.db", "/a/a/x.db"]) == [("a", "x.db"), ("a-2", "x.db")]


def test_files_that_are_called_differently() -> None:
    assert set_names(["/a/log.db", "/b/other.db", "c/summary.json"]) == ["log.db", "other.db", "summary.json-2"]
    assert hub_names(["x.db", "y.db"]) == [
        (os.path.basename(os.getcwd()), "x.db"),
        (os.path.basename(os.getcwd()), "y.db"),
    ]


def test_urls() -> None:
    logs = ["s3://ber/hubs/x.db", "s3://ams/hubs/x.db", "postgresql://me@host/notes?schema=a%20b"]
    assert set_names(logs) == ["ber/hubs/x.db", "ams/hubs/x.db", "host/notes-schema-a-20b"]
    assert hub_names(logs) == [("ber-hubs", "x.db"), ("ams-hubs", "x.db"), ("host", "notes-schema-a-20b")]
    assert set_names(["file:/a/x.db?immutable=1", "/b/y.db"]) == ["x.db", "y.db"]


def test_long_names_are_shortened(tmp_path: Path) -> None:
    """A folder may not be called as a deep hub is, nor a partition as a file with a long name."""
    deep = "/".join(f"rack-{number}" for number in range(60))
    # Of two bytes each, cut amid one of them.
    long = "ä" * 125 + ".db"
    logs = [f"/data/{deep}/{hub}/{file}" for hub in ("north", "south") for file in (long, f"x{long}", "plain.db")]
    pairs = hub_names([*logs, "/data/other/plain.db"])
    assert len({*pairs}) == len(logs) + 1
    for hub, name in pairs:
        (tmp_path / f"hub={hub}" / f"log={name}").mkdir(parents=True)
        assert name.endswith(".db")
    assert pairs[0][0].startswith("rack-0-rack-1-")
    assert pairs[0][0].endswith("-rack-59-north")
    assert pairs[2][1] == "plain.db"
    # As they were, whatever logs come.
    assert hub_names([*logs[1:], "/data/more/plain.db"])[:-1] == pairs[1:-1]
    for name in set_names([*logs, f"s3://bucket/{'k' * 300}/{long}"]):
        (tmp_path / "sets" / name).mkdir(parents=True)


@given(st.lists(_PATHS | _URLS, unique=True, min_size=1, max_size=12))
@example(["/data/a b/x", "/data/a-b/x", "/data/a=b/x"])
@example(["/data/:.", "/data/a/:."])
def test_no_two_logs_share_a_folder(logs: Sequence[str]) -> None:
    # No file is a folder of another one.
    assume(not any(other.startswith(f"{log}/") for log in logs for other in logs))
    pairs = hub_names(logs)
    assert len({*pairs}) == len(pairs) == len(logs)
    # As Spark writes them, and as anybody types them.
    assert all(re.fullmatch(r"[\w.-]+", part) and part not in (".", "..") for pair in pairs for part in pair)
    names = set_names(logs)
    assert len({*names}) == len(names) == len(logs)
    for name in names:
        assert name != SUMMARY
        assert not os.path.isabs(name)
        assert ".." not in name.split("/")
        # No set lies in another one's folder.
        assert not any(other.startswith(f"{name}/") for other in names)
