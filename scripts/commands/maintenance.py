"""What the commands share: options, the run with its exit codes, and how it is printed."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config.settings import Settings


EXIT_OK, EXIT_FAILED, EXIT_REFUSED = 0, 1, 2
EXIT_NO_READER = 141  # 128 + SIGPIPE, as a shell reports it


class CommandError(Exception):
    """The command ends with `exit_code`; the message is one line for standard error."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def whole_days(text: str) -> int:
    return whole_number(text, 36_500, "a number of days from 1 to 36500")


def whole_number(text: str, most: int, expected: str) -> int:
    """Raises ArgumentTypeError, which says what is `expected`."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= number <= most:
        raise argparse.ArgumentTypeError(f"{shown(text)}: {expected}")
    return number


def time_zone(text: str) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(f"there is no time zone {text!r}") from None
    return text


def unsendable() -> CommandError:
    return CommandError("an argument or a setting has characters that cannot be sent or shown", EXIT_REFUSED)


def run(
    command: Callable[[Settings, argparse.Namespace], Awaitable[int]], options: argparse.Namespace
) -> int:
    """Run it with the settings. Returns the exit code: 0 done, 1 failed, 2 the configuration is refused."""
    from config.logging import configure_logging
    from config.settings import load_settings
    from config.sources import ConfigurationError
    from core.errors import StartRefusedError, StoreLockedError, WenmaiError

    configure_logging("warning")
    try:
        return asyncio.run(_awaited(command(load_settings(), options)))
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
        return 130


async def _awaited(work: Awaitable[int]) -> int:
    exit_code = await work
    sys.stdout.flush()  # else it is found at the very end that nobody reads
    return exit_code


def end_unread() -> int:
    """Quietly, when whoever reads the output has gone (`| head`). Returns the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
    return EXIT_NO_READER


def shown(text: str) -> str:
    """Without what would steer a terminal; lines stay lines."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


def print_refusal(error: Exception, exit_code: int) -> int:
    """Returns the exit code."""
    from config.secrets import Mask

    print(f"wenmai: {shown(Mask()(str(error)))}", file=sys.stderr)
    return exit_code


def print_table(rows: Sequence[tuple[str, int | str]]) -> None:
    """One row a line, numbers in a column."""
    widths = max(len(label) for label, _ in rows), max(len(str(value)) for _, value in rows)
    for label, value in rows:
        print(f"{label:<{widths[0]}}  {value:>{widths[1]}}")


def print_json(body: object) -> None:
    print(json.dumps(body, ensure_ascii=False, indent=2))


_LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def one_math_thread() -> None:
    """Two spin against each other on a small machine. What the environment says goes before."""
    for name in _LIBRARIES:
        os.environ.setdefault(name, "1")
