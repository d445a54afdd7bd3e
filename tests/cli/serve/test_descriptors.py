"""The limit of file descriptors, set and read without changing that of this process."""

from __future__ import annotations

import resource

import pytest

from gossiplog.cli.serve.descriptors import descriptor_warning, raise_descriptor_limit


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (64, 20_000, 20_000),
        (512, 512, 512),
        (64, resource.RLIM_INFINITY, 2**20),
        (resource.RLIM_INFINITY,) * 2 + (None,),
    ],
)
def test_the_soft_limit_is_raised(soft: int, hard: int, expected: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (soft, hard)

    def change(kind: int, changed: tuple[int, int]) -> None:
        nonlocal limits
        limits = changed

    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(resource, "setrlimit", change)
    assert raise_descriptor_limit() == expected
    assert limits == (expected or soft, hard)


def test_a_limit_that_the_system_refuses_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: int, limits: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_descriptor_limit() == 256


def test_a_limit_that_is_too_low_is_said() -> None:
    text = descriptor_warning(1024, 1024, 1)
    assert text.startswith("--connections 1024 needs about 1152 file descriptors, and this process may have 1024")
    assert "LimitNOFILE=" in text
    assert descriptor_warning(1152, 1024, 1) == ""
    assert descriptor_warning(1152, 1024, 2) != ""
    assert descriptor_warning(None, 10**6, 2) == ""
