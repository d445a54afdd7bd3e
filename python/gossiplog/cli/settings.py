"""Options that can also be set in a file and in the environment.

A command of the class `SettingsCommand` takes each of its options from the command line, else from a variable
(`GOSSIPLOG_` and the option's name), else from the file of `--config`, else its default. Lists are not merged. The
options are those of the command's function; there is no other table of them.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from gossiplog.cli.help import Command
from gossiplog.cli.output import printable
from gossiplog.files import open_file

PREFIX = "GOSSIPLOG_"
MAX_FILE_BYTES = 2**20
"""Bytes of a file of settings."""
# Options about settings, which cannot be settings themselves.
_ABOUT_SETTINGS = ("config", "show_config")
# What Kubernetes sets for a service: https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables.
_SERVICE_VALUES = ("tcp://", "udp://", "sctp://")
_ALIKE = 0.8


def _load(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        context.default_map = read_settings(path, _options(context))
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        callback=_load,
        is_eager=True,
        help='Take options that are not given here from a file in TOML, by their names: hub = "0.0.0.0:8000".',
    ),
]
ShowConfig = Annotated[
    bool,
    typer.Option("--show-config", help="Show the options as such a file, with the source of each, and exit."),
]


class SettingsCommand(Command):
    """A command whose options can be set in the environment and, with an option `Config`, in a file."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for parameter in self.params:
            if isinstance(parameter, TyperOption) and parameter.name != "show_config":
                parameter.envvar = variable(parameter.name)
                parameter.show_envvar = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line; errors name the place of the value."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if error.param is not None and error.param_hint is None:
                error.param_hint = place(ctx, error.param.name)
                value = os.environ.get(error.param_hint, "")
                if value.startswith(_SERVICE_VALUES):
                    error.message += (
                        "; Kubernetes sets this variable for a service of that name: set enableServiceLinks: false"
                    )
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors about options name those that are not on the command line."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            places = [where for option in _options(ctx) if not (where := place(ctx, option.name)).startswith("-")]
            if given := [where for where in places if where]:
                error.message += f" (options that are not on the command line: {', '.join(given)})"
            raise


def variable(name: str) -> str:
    """Return the name of the variable that sets a parameter."""
    return PREFIX + name.upper()


def key(name: str) -> str:
    """Return the key that sets a parameter in a file: the name of the option without its leading dashes."""
    return name.replace("_", "-")


def place(context: typer.Context, name: str) -> str:
    """Return the source of a parameter's value: an option, a variable, or a key and its file; "" for the default."""
    source = context.get_parameter_source(name)
    match source.name if source is not None else "":
        case "COMMANDLINE":
            return f"--{key(name)}"
        case "ENVIRONMENT":
            return variable(name)
        case "DEFAULT_MAP":
            return f"{key(name)} in {context.params.get('config')}"
    return ""


def read_settings(path: Path, options: Collection[TyperOption]) -> dict[str, Any]:
    """Read a file of settings.

    Args:
        path: of the file, in TOML (https://toml.io/en/v1.0.0).
        options: that it may have.

    Returns:
        The values by the names of parameters; a table such as [gossip] as a list of "name=value".

    Raises:
        BadParameter: the file cannot be read, has a key that is no option, or a value of another type.
    """
    try:
        with open_file(path) as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise typer.BadParameter(f"{path} has more than {MAX_FILE_BYTES:,} bytes: expected a file of settings")
        found = tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        # TOMLDecodeError or UnicodeDecodeError.
        raise typer.BadParameter(f"{path} is not TOML: {error}") from error
    except RecursionError as error:
        raise typer.BadParameter(f"{path} cannot be used: its lists and tables are nested too deeply") from error
    by_key = {key(option.name): option for option in options}
    values: dict[str, Any] = {}
    for name, value in found.items():
        option = by_key.get(name)
        if option is None:
            raise typer.BadParameter(f"{path} sets {_shown(name)}, which is not an option: {_suggestion(name, by_key)}")
        values[option.name] = _typed(path, option, value)
    return values


def show_settings(context: typer.Context, *, secret_files: Collection[str], as_json: bool) -> Iterator[str]:
    """Yield the options of a command as lines that `read_settings` reads, or as JSON.

    Args:
        context: of the command.
        secret_files: parameters that name files with secrets. A value that may be the secret itself is not shown.
        as_json: whether to yield one line, an object with the value and the source of each option.
    """
    shown: dict[str, Any] = {}
    for option in _options(context):
        name, value = option.name, context.params[option.name]
        plain = _plain(value)
        hidden = name in secret_files and value is not None and may_be_secret(value)
        where = place(context, name)
        shown[key(name)] = {"value": None if hidden else plain, "from": where or "default"}
        if as_json:
            continue
        if hidden:
            yield f"# {key(name)}: {len(str(value))} characters that name no file, not shown; from {where}"
        elif plain is None:
            yield f"# {key(name)} is not set"
        else:
            yield f"{key(name)} = {_toml(plain)}  # {printable(where or 'default')}"
    if as_json:
        yield json.dumps(shown)


def may_be_secret(path: Path) -> bool:
    """Return whether the name of a file may be a secret by mistake: neither the file nor a folder of it exists."""
    # The path's own methods raise for a name that is too long, with the name in the error.
    return not os.path.exists(path) and (path.parent in (Path("."), Path("/")) or not os.path.isdir(path.parent))


def misspelt(context: typer.Context, environment: Mapping[str, str]) -> list[str]:
    """Return warnings about variables that look like those of options, each with a suggestion.

    Others that begin with PREFIX are ignored: Kubernetes sets some for a service that is called gossiplog.
    """
    known = ["CONFIG", *(option.name.upper() for option in _options(context))]
    found = []
    for name in environment:
        rest = name.removeprefix(PREFIX)
        if rest != name and rest not in known and (alike := _alike(rest, known)):
            found.append(f"the variable {_shown(name)} sets no option: did you mean {PREFIX}{alike}?")
    return found


def _options(context: typer.Context) -> list[TyperOption]:
    return [
        parameter
        for parameter in context.command.params
        if isinstance(parameter, TyperOption) and parameter.name not in _ABOUT_SETTINGS
    ]


def _typed(path: Path, option: TyperOption, value: Any) -> Any:
    name, annotation = key(option.name), option.type_descriptor.annotation
    if option.multiple:
        if isinstance(value, dict) and "=" in (option.metavar or ""):
            value = [f"{part}={number}" for part, number in value.items()]
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            return value
        expected = f'a list of strings, such as {name} = ["…"]'
    elif annotation is bool:
        if isinstance(value, bool):
            return value
        expected = "true or false"
    elif annotation is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        expected = f"a whole number, such as {name} = 1"
    else:
        if isinstance(value, str):
            return value
        expected = f'a string, such as {name} = "…"'
    raise typer.BadParameter(f"{path}: the value of {name} is {_kind(value)}; expected {expected}")


def _kind(value: object) -> str:
    # The value itself may be a secret in the wrong place.
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case dict():
            return "a table"
    return "a date or a time"


def _suggestion(name: str, known: Collection[str]) -> str:
    alike = _alike(name.replace("_", "-").lower(), known)
    return f"did you mean {alike}?" if alike else f"expected one of {', '.join(sorted(known))}"


def _alike(name: str, known: Collection[str]) -> str:
    return next(iter(difflib.get_close_matches(name, known, 1, _ALIKE)), "")


def _shown(name: str) -> str:
    return repr(name if len(name) <= 100 else f"{name[:100]}…")


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [str(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def _toml(value: Any) -> str:
    """Return a value in TOML, which writes strings, numbers, booleans and lists as JSON does."""
    return printable(json.dumps(value, ensure_ascii=False))
