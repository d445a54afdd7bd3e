"""`gossiplog.net.http.answers`: what the API answers in pieces is in `test_api.py`."""

from __future__ import annotations

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from gossiplog.errors import DecodeError, EncodeError, StorageError, UnknownMessage
from gossiplog.net.http.admission import Overloaded
from gossiplog.net.http.answers import RETRY_SECONDS, Written, read_query, refusing
from tests.net.asgi import scope


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UnknownMessage("0" * 32), 404, "0" * 32),
        (DecodeError("no id"), 400, "no id"),
        (EncodeError("a link has no text"), 406, "a link has no text"),
        (Overloaded("too many requests"), 503, "too many requests"),
        (StorageError("/secret/place is full"), 503, "the log cannot be used at the moment"),
    ],
)
def test_errors_reveal_nothing_of_the_server(error: Exception, status: int, said: str) -> None:
    with pytest.raises(HTTPException) as caught, refusing():
        raise error
    assert caught.value.status_code == status
    assert said in caught.value.detail
    assert "secret" not in caught.value.detail
    assert caught.value.__cause__ is error
    assert (caught.value.headers or {}).get("Retry-After") == (
        str(RETRY_SECONDS) if type(error) is Overloaded else None
    )


def test_reasons_are_cut() -> None:
    with pytest.raises(HTTPException) as caught, refusing():
        raise DecodeError("x" * 10_000)
    assert len(caught.value.detail) < 1100


def test_other_errors_are_defects() -> None:
    with pytest.raises(KeyError), refusing():
        raise KeyError("x")


@pytest.mark.parametrize(("query", "said"), [("b=1", "'b' is not known"), ("a=1&a=2", "stands more than once")])
def test_queries_that_cannot_be_read(query: str, said: str) -> None:
    with pytest.raises(HTTPException, match=said) as caught:
        read_query(Request(scope("http", f"/?{query}")), ("a",))
    assert caught.value.status_code == 400
    assert read_query(Request(scope("http", "/?a=1")), ("a",)) == {"a": "1"}


def test_what_was_written_at_once_is_read_once() -> None:
    answer = Written(b"text")
    assert (answer.held, answer.read(1), answer.read(1)) == (4, b"text", b"")
