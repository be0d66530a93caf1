"""The command line.

It reads arguments, says what is wrong with them, and hands over to `gateway.app`.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
import uvloop

from gateway import config
from gateway.app.run import Gateway, until_told
from gateway.cli.demo import demo
from gateway.clock import SystemClock
from gateway.errors import ConfigError
from gateway.settings import Settings

PROBLEMS, USAGE, INTERRUPTED = 1, 2, 130  # exit codes

app = typer.Typer(
    name="tiergate",
    help="One OpenAI-compatible gateway in front of your own model servers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(demo)


@app.callback(invoke_without_command=True)
def version(
    *, show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False
) -> None:
    """One OpenAI-compatible gateway in front of your own model servers."""
    if show:
        from importlib import metadata  # noqa: PLC0415  a tenth of a start that doesn't need it

        try:
            print(metadata.version("tiergate"))
        except metadata.PackageNotFoundError:
            print("not installed: running from a checkout")
        raise typer.Exit


@app.command()
def serve(
    urls: Annotated[
        list[str] | None,
        typer.Argument(help="Model servers, such as http://gpu1:8000. Their models are found out."),
    ] = None,
    *,
    config_file: Annotated[
        Path | None, typer.Option("--config", "-c", help="A gateway.yaml instead of URLs.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT to listen on.  [default: 127.0.0.1:8080]")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Folder for the gateway's own files.  [default: ./tiergate-data]"),
    ] = None,
    auth: Annotated[
        Literal["none"] | None,
        typer.Option(help="`none`: let whoever can connect use the workers."),
    ] = None,
    lane: Annotated[
        bool, typer.Option("--lane/--no-lane", hidden=True, help="Leave the fast lane out.")
    ] = True,
) -> None:
    """Serve in front of model servers.

    Example: tiergate serve http://gpu1:8000 http://gpu2:8000
    """
    settings = _settings(urls or [], config_file, listen, data, auth)
    try:
        gateway = Gateway(settings, SystemClock(), say)
        connections = settings.limits.connections
        uvloop.run(until_told(gateway, with_lane=lane, connections=connections, say=say))
    except* OSError as group:
        for error in group.exceptions:
            say(f"can't listen on {settings.listen}: {getattr(error, 'strerror', None) or error}")
        raise typer.Exit(PROBLEMS) from None


def _settings(
    urls: list[str],
    file: Path | None,
    listen: str | None,
    data: str | None,
    auth: Literal["none"] | None,
) -> Settings:
    """The settings that the arguments ask for; ends the command if they make no sense."""
    if bool(urls) == bool(file):
        say("say either the URLs of model servers, or --config FILE")
        raise typer.Exit(USAGE)
    try:
        if file is not None:
            settings = config.load_file(str(file))
            settings = config.override(settings, listen=listen, data=data, auth=auth)
        else:
            settings = config.from_urls(urls, listen=listen, data=data, auth=auth)
            say(f"# a gateway.yaml that does the same:\n{config.render(settings)}")
    except ConfigError as error:
        say(str(error))
        raise typer.Exit(PROBLEMS) from None
    problems = config.check_files(settings, str(file or "command line"))
    if problems:
        say("\n".join(map(str, problems)))
        raise typer.Exit(PROBLEMS)
    return settings


def say(text: str) -> None:
    """Tell the operator, beside the request log on standard output."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Entry point of `tiergate` and of `python -m gateway`."""
    _fill_standard_files()
    try:
        app()
    except KeyboardInterrupt:  # before the gateway listens to signals
        sys.exit(INTERRUPTED)


def _fill_standard_files() -> None:
    """Put something where a caller closed one of the first three files.

    The next socket would get its number, and be taken for it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or Path("/dev/null").open("w")  # noqa: SIM115  (as long as the process)
    sys.stderr = sys.stderr or sys.stdout
