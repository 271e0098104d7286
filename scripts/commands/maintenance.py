"""Shared by all commands: options, running with exit codes, and printing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, is_dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from config.deferred import defer_packages
from core.errors import StartRefusedError, StoreLockedError, WenmaiError

if TYPE_CHECKING:
    from config.settings import Settings


T = TypeVar("T")

EXIT_OK, EXIT_FAILED, EXIT_REFUSED = 0, 1, 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
EXIT_NO_READER = 141  # 128 + SIGPIPE
EXIT_CODES = {
    EXIT_OK: "done, also when there was nothing to do",
    EXIT_FAILED: "failed, in whole or in part, no server answers, or the store is in use; the last line "
    "says what",
    EXIT_REFUSED: "refused, and nothing was done: an option, a setting or the request is not allowed",
    EXIT_INTERRUPTED: "interrupted with Ctrl-C: what was written is complete",
    EXIT_NO_READER: "the output is no longer read (`| head`)",
}


class Options(SimpleNamespace):
    """The options and arguments of a command, by name."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the command has no option {name}")


class CommandError(Exception):
    """The command ends with `exit_code`; the message is one line for standard error."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


HELP_OPTIONS = ["-h", "--help"]
as_json = click.option("--json", is_flag=True, help="Print the result as JSON.")


def invoke(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments and run the command. Returns the exit code; usage errors print one line."""
    defer_packages()
    try:
        result: int | None = command.main(
            arguments, _command_name(command), standalone_mode=False, help_option_names=HELP_OPTIONS
        )
    except click.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        name = context.command_path if context else _command_name(command)
        reason = " ".join(error.format_message().split())
        reason += "" if reason.endswith((".", "?")) else "."
        return print_refusal(CommandError(f"{reason} See {name} --help."), EXIT_REFUSED)
    return result or EXIT_OK


def _command_name(command: click.Command) -> str:
    return "wenmai" if isinstance(command, click.Group) else f"wenmai {command.name}"


def one_of(options: Options, *names: str, required: bool = False) -> None:
    """Raises UsageError if more than one of these options is used, or none although one is `required`."""
    present = [name for name in names if getattr(options, name)]
    if len(present) > 1:
        raise click.UsageError(f"{_option(present[0])} cannot be combined with {_option(present[1])}.")
    if required and not present:
        raise click.UsageError(f"One of these is needed: {', '.join(map(_option, names))}.")


def _option(name: str) -> str:
    """Return an option as it is typed, an argument as the usage line names it."""
    (param,) = (each for each in click.get_current_context().command.params if each.name == name)
    return (param.metavar or name).strip("[]") if isinstance(param, click.Argument) else param.opts[0]


def time_zone(text: str) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise click.BadParameter(f"there is no time zone {text!r}.") from None
    return text


def unsendable() -> CommandError:
    return CommandError(
        "an argument or a setting contains characters that cannot be sent or shown", EXIT_REFUSED
    )


def run(command: Callable[[Settings, Options], Awaitable[int]], options: Options) -> int:
    """Run the command with the settings. Returns one of EXIT_CODES."""
    from config.logging import configure_logging
    from config.settings import load_settings
    from config.sources import ConfigurationError

    configure_logging("warning")
    try:
        return asyncio.run(_run_and_flush(command(load_settings(), options)))
    except BrokenPipeError:
        return end_unread()
    except UnicodeEncodeError:
        return print_refusal(unsendable(), EXIT_REFUSED)
    except CommandError as error:
        return print_refusal(error, error.exit_code)
    except StoreLockedError as error:
        return print_refusal(error, EXIT_FAILED)
    except (ConfigurationError, StartRefusedError) as error:
        return print_refusal(error, EXIT_REFUSED)
    except (WenmaiError, OSError) as error:
        return print_refusal(error, EXIT_FAILED)
    except KeyboardInterrupt:
        print("interrupted: what was written is complete; run it again to finish", file=sys.stderr)
        return EXIT_INTERRUPTED


async def _run_and_flush(work: Awaitable[int]) -> int:
    exit_code = await work
    sys.stdout.flush()  # else a closed pipe is noticed only at interpreter exit
    return exit_code


def end_unread() -> int:
    """End quietly when the output's reader has gone (`| head`). Returns the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for output still in the buffer
    return EXIT_NO_READER


_SPACES = "\n\t\N{NO-BREAK SPACE}\N{IDEOGRAPHIC SPACE}"


def shown(text: str) -> str:
    """Escape control characters for the terminal, keeping line breaks."""
    return "".join(
        char if char.isprintable() or char in _SPACES else char.encode("unicode_escape").decode()
        for char in text
    )


def print_refusal(error: Exception, exit_code: int) -> int:
    """Print the error with secrets masked. Returns the exit code."""
    from config.secrets import Mask

    print(f"wenmai: {shown(Mask()(str(error)))}", file=sys.stderr)
    return exit_code


def print_table(rows: Sequence[tuple[str, int | str]]) -> None:
    """Print one row per line, values right-aligned in a column."""
    widths = max(len(label) for label, _ in rows), max(len(str(value)) for _, value in rows)
    for label, value in rows:
        print(f"{label:<{widths[0]}}  {value:>{widths[1]}}")


def print_json(body: object) -> None:
    print(json.dumps(body, ensure_ascii=False, indent=2))


def print_result(result: T, options: Options, print_words: Callable[[T], object]) -> None:
    """Print the result in words, or, with --json, a wire model, dataclass or JSON value as JSON."""
    if not options.json:
        print_words(result)
        return
    from pydantic import BaseModel

    if isinstance(result, BaseModel):
        print_json(result.model_dump())
    else:
        print_json(asdict(result) if is_dataclass(result) and not isinstance(result, type) else result)


_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def one_math_thread() -> None:
    """Limit math libraries to one thread unless set: two spin against each other on small machines."""
    for name in _THREAD_VARIABLES:
        os.environ.setdefault(name, "1")
