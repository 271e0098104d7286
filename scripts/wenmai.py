"""One command for all others: `wenmai serve`, `wenmai doctor`, `wenmai backup`…

`wenmai NAME --help` shows what a command takes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

EXIT_REFUSED = 2


@dataclass(frozen=True, slots=True)
class Command:
    """A `function` of a module of `scripts`, which returns the exit code; a `bare` one takes no arguments."""

    module: str
    purpose: str
    function: str = "main"
    bare: bool = False


COMMANDS = {
    "serve": Command("serve", "start the server", bare=True),
    "doctor": Command("commands.doctor", "check the installation, the configuration and what is stored"),
    "ask": Command("commands.ask", "ask a question in the terminal"),
    "ingest": Command("ingest", "read documents in"),
    "sync": Command("commands.sync", "follow the configured folders now, and say what became of every file"),
    "backup": Command(
        "commands.archives", "write one archive of everything that is stored, while the server runs", "backup"
    ),
    "restore": Command("commands.archives", "put a backup into an empty store", "restore"),
    "migrate": Command("commands.archives", "move between the embedded store and a Qdrant server", "migrate"),
    "cleanup": Command("cleanup_expired", "remove expired conversations"),
    "erase": Command("commands.erase", "erase a turn, a session, a document or an owner, and prove it"),
    "prompt": Command("commands.ask", "show what was sent to the model for a turn", "show_prompt"),
    "evaluate": Command("commands.evaluate", "measure retrieval on sets of questions"),
    "calibrate": Command(
        "commands.calibrate", "fit what counts as sure to your own documents, by your own questions"
    ),
    "repair": Command("backfill_parent_turns", "repair what earlier versions left in the conversations"),
    "reembed": Command("commands.reembed", "embed everything that is stored with another model"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command's own exit code; 2 when there is no such command."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    name, *rest = words
    command = COMMANDS.get(name)
    if command is None:
        print(f"wenmai: there is no command {name!r}; wenmai --help lists them", file=sys.stderr)
        return EXIT_REFUSED
    return _run(command, rest)


def _run(command: Command, arguments: Sequence[str]) -> int:
    """Only the command that is run is loaded."""
    if command.bare and arguments:
        return _explain(command, arguments)
    run = getattr(importlib.import_module(f"scripts.{command.module}"), command.function)
    return int(run() if command.bare else run(arguments))


def _explain(command: Command, arguments: Sequence[str]) -> int:
    if arguments[0] in ("-h", "--help"):
        print(importlib.import_module(f"scripts.{command.module}").__doc__)
        return 0
    print(f"wenmai: {command.module} takes no options, settings are in the environment", file=sys.stderr)
    return EXIT_REFUSED


def _overview() -> str:
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {command.purpose}" for name, command in COMMANDS.items()]
    return "\n".join(["wenmai COMMAND [options]", "", *rows, "", "wenmai COMMAND --help shows its options."])


if __name__ == "__main__":
    sys.exit(main())
