"""Secrets in URLs are refused, and not repeated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from gossiplog.errors import GossipLogError, OptionError
from gossiplog.spark.failures import unwrapped
from gossiplog.spark.folders import check_building, local_path, read_path, read_pattern, write_path
from gossiplog.spark.jobs.ingest import check_new_log
from gossiplog.spark.source.locations import identity, locations
from gossiplog.spark.source.opening import check_logs, opened
from gossiplog.spark.source.problems import fleet_locations
from gossiplog.spark.url_secrets import check_no_secret, has_secret, redacted

SECRET = "HIDDEN"
WITH_SECRET = [
    "postgresql://me:HIDDEN@h/db",
    "postgres://me:HIDDEN@h/db",
    "postgresql://h/db?password=HIDDEN",
    "POSTGRESQL://me:HIDDEN@h/db",
    "postgresql:/me:HIDDEN@h/db",
    "postgresql:me:HIDDEN@h/db",
    "postgresql+psycopg://me:HIDDEN@h/db",
    "psql://me:HIDDEN@h/db",
    "{postgresql://me:HIDDEN@h/db,x}",
    "{x,s3://k:HIDDEN@b/x}",
    "{postgresql:me:HIDDEN@h,x}",
    "s3://key:HIDDEN@bucket/a.db",
    "s3://key:HID/DEN@bucket/a.db",
    "s3://bucket/a.db?secret_key=HIDDEN",
    "s3://b/a.db?x=1;token=HIDDEN",
    "S3://key:HIDDEN@bucket/a.db",
    "s3a://key:HIDDEN@bucket/a.db",
    "s3n://k:HIDDEN@b/a.db",
    "hdfs://u:HIDDEN@h/a.db",
    "abfs://x:HIDDEN@h/a.db",
    "abfs://c@acct.dfs.core.windows.net/a.db?sv=1&sig=HIDDEN",
    "gs://b/a.db?access_token=HIDDEN",
    "abfs://c@a/a.db?SIG=HIDDEN",
    "abfs://c@a/a.db?s%69g=HIDDEN",
    "abfs://c@a/*.db#sig=HIDDEN",
    "fsspec+http://u:HIDDEN@h/a.db",
    "fsspec+ftp://u:HIDDEN@h/a.db",
    "fsspec+http://h/a.db?token=HIDDEN",
    "https://u:HIDDEN@h/a.db",
    "https://h/a.db?X-Amz-Signature=HIDDEN",
    "https://h/a.db?X-Amz-Credential=HIDDEN",
    "ws://u:HIDDEN@h/",
    "file:///x.db?key=HIDDEN",
    "file:x.db?mode=ro&hexkey=HIDDEN",
    "wasbs://c:HIDDEN@h/a",
    "hdfs://u:S/HIDDEN@h:8020/a",
]
WITHOUT = [
    "a.db",
    "/a/b:c@d/x.db",
    "./s3://k:v@b/x",
    "/data/10:30/me@example.org.db",
    "notes:2026",
    "a@b:c.db",
    "s3://bucket/10:30/me@x.db",
    "s3://bucket/a.db?region=eu-west-1",
    "hdfs://me@h:8020/x@y.db",
    "hdfs://[::1]:8020/x@y.db",
    "abfs://c@acct/a.db?enable_tls=1",
    "file:/a:b@c/x.db",
    "file:///x.db?mode=ro&cache=private",
    "file:a.db?immutable=1",
    "hdfs:///a.db",
    "viewfs://n/a",
    "{/a,/b}/*.db",
    "postgresql://me@h1:1,h2:2/db?schema=x",
    "abfs://c@a/x.db?blob_storage_authority=h",
]


@pytest.mark.parametrize("location", [*WITH_SECRET, " postgresql://me:HIDDEN@h/db", "s3://k:HID DEN@b/x"])
def test_no_function_repeats_a_secret(location: str) -> None:
    functions: list[Callable[[str], object]] = [
        check_no_secret,
        lambda url: locations([url]),
        lambda url: locations([url], name_filter="*.db"),
        lambda url: fleet_locations([url]),
        lambda url: check_logs([url]),
        lambda url: opened(url).__enter__(),
        identity,
    ]
    assert has_secret(location)
    for function in functions:
        with pytest.raises(GossipLogError) as caught:
            function(location)
        assert not any(part in str(caught.value) for part in ("HID", "DEN"))


@pytest.mark.parametrize("location", WITHOUT)
def test_what_has_no_secret(location: str) -> None:
    check_no_secret(location)
    # Amid words nobody knows where a path begins.
    assert location.startswith((".", "/")) or redacted(location) == location


@pytest.mark.parametrize("url", [url for url in WITH_SECRET if ":/" in url and url[0] != "{" and url[:5] != "file:"])
def test_folders_and_logs_to_be_made(url: str) -> None:
    functions: list[Callable[[str], object]] = [
        lambda path: local_path(path, "the state"),
        lambda path: check_building(path, "the report"),
        lambda path: check_new_log(path, "t"),
        write_path,
        read_path,
        read_pattern,
    ]
    for function in functions:
        with pytest.raises(GossipLogError) as caught:
            function(url)
        assert "DEN" not in str(caught.value)


PART = st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=6)


@given(
    st.sampled_from(["s3", "s3a", "abfss", "hdfs", "fsspec+ftp", "https", "wasb"]),
    PART,
    st.text(st.characters(exclude_characters="@\0", exclude_categories=["Cs"]), max_size=12),
    PART,
)
@example("s3", "", "/#?", "")
def test_passwords(scheme: str, user: str, password: str, path: str) -> None:
    url = f"{scheme}://{user}:{password}{SECRET}@host/{path}"
    with pytest.raises(OptionError) as caught:
        check_no_secret(url)
    assert SECRET not in str(caught.value)


@given(st.sampled_from(["s3://b/", "abfs://c@a/x?sv=1&", "file:/x?", "https://h/", "gs://b/*?a=b#"]), PART, PART)
def test_parameters(begin: str, before: str, after: str) -> None:
    for name in ("sig", "Signature", "token", "secret", "PASSWORD", "key", "sas", "credentials"):
        url = f"{begin}{'' if '?' in begin else '?'}{before}{name}{after}={SECRET}&x=1"
        with pytest.raises(OptionError) as caught:
            check_no_secret(url)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", [url for url in WITH_SECRET if url[0] != "{"])
def test_what_spark_says_is_shown_without_secrets(url: str) -> None:
    shown = str(unwrapped(PySparkException(f"[PATH_NOT_FOUND] Path does not exist: {url}. Is it there?\nat x")))
    assert "DEN" not in shown
    assert shown.startswith("Spark failed: [PATH_NOT_FOUND] Path does not exist: ")
    assert shown.endswith(" Is it there?")
