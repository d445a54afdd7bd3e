"""The options that all jobs have, and those of their own."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer

from gossiplog.cli.pipeline_session import SessionOptions, job


def test_a_job_has_its_own_options_and_those_of_a_session() -> None:
    called: list[tuple[str, int, SessionOptions]] = []

    def count(
        log: Annotated[str, typer.Argument()],
        most: Annotated[int, typer.Option()] = 3,
        *,
        options: SessionOptions,
    ) -> None:
        """Count something."""
        called.append((log, most, options))

    app = typer.Typer()
    app.command()(job(count))
    command = typer.main.get_command(app)
    assert command.help == "Count something."
    command.main(["a.db"], standalone_mode=False)
    command.main(
        ["--master", "local[2]", "b.db", "--conf", "a=1", "--conf", "b=2=3", "--driver-memory", "1g", "--most", "4"],
        standalone_mode=False,
    )
    assert [(log, most) for log, most, _ in called] == [("a.db", 3), ("b.db", 4)]
    assert [options for *_, options in called] == [
        SessionOptions(),
        SessionOptions("local[2]", ["a=1", "b=2=3"], "1g"),
    ]
    assert called[1][2].properties() == {"a": "1", "b": "2=3"}


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_a_property_without_a_name_or_a_value(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected NAME=VALUE"):
        SessionOptions(conf=[text]).properties()
