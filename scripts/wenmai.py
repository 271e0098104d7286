"""The entry point of all commands: `wenmai serve`, `wenmai doctor`, `wenmai backup`…"""

from __future__ import annotations

import importlib
import keyword
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from scripts.commands.maintenance import EXIT_CODES, EXIT_OK, Options, as_json, invoke, print_result

COMMANDS = {
    "serve": ("serve", "Start the server."),
    "ask": ("commands.ask", "Ask a question in the terminal."),
    "ingest": ("ingest", "Add files to a running server."),
    "sync": ("commands.sync", "Sync the configured folders now."),
    "search": ("commands.ask", "Show which passages a question finds."),
    "import": ("commands.conversations", "Import conversations of another product, or of Wenmai."),
    "mcp": ("commands.agents", "Give the tools of a running server to an agent."),
    "sessions": ("commands.conversations", "List the conversations, or the turns of one."),
    "prompt": ("commands.conversations", "Show what a model received for a turn."),
    "doctor": ("commands.doctor", "Check the installation, the configuration and what is stored."),
    "evaluate": ("commands.evaluate", "Measure retrieval and answers on sets of questions."),
    "calibrate": ("commands.calibrate", "Calibrate certainty to your own documents."),
    "cleanup": ("cleanup_expired", "Remove expired conversations, prompts and memories."),
    "erase": ("commands.erase", "Erase a turn, session, document, memory or owner, and prove it."),
    "repair": ("backfill_parent_turns", "Repair what earlier versions left in the conversations."),
    "backup": ("commands.archives", "Write everything that is stored into one archive."),
    "restore": ("commands.archives", "Restore a backup into an empty store."),
    "migrate": ("commands.archives", "Move between the embedded store and a Qdrant server."),
    "reembed": ("commands.reembed", "Re-embed everything stored with another model."),
    "version": ("wenmai", "Print the version."),
}
"""Name → the module of `scripts` that defines the command under this name, and its purpose."""
PARTS = ("qdrant-edge-py", "qdrant-client", "llama-index-core", "fastapi", "uvicorn")


class Commands(click.Group):
    """Loads only the command that is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(
            importlib.import_module(f"scripts.{COMMANDS[cmd_name][0]}"), _function(cmd_name)
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, purpose) for name, (_, purpose) in COMMANDS.items()])
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


def _function(command: str) -> str:
    """Return the command's function name, which differs if the command's name is a Python keyword."""
    return f"{command}_" if keyword.iskeyword(command) else command


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        print(f"wenmai {_version('wenmai')}")
        ctx.exit()


@click.group("wenmai", cls=Commands, no_args_is_help=False, invoke_without_command=True)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
    help="Print the version.",
)  # fmt: skip
@click.pass_context
def wenmai(context: click.Context) -> None:
    """Wenmai 问脉, a self-hosted RAG conversation server. `wenmai COMMAND --help` shows its options."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@click.command("version")
@as_json
def version(**options: Any) -> int:
    """Print the version, and those of Python and the main libraries."""
    versions = {"wenmai": _version("wenmai"), "python": sys.version.split()[0]}
    versions |= {name: _version(name) for name in PARTS}
    lines = "\n".join(f"{name} {number}" for name, number in versions.items())
    print_result(versions, Options(**options), lambda _: print(lines))
    return EXIT_OK


def _version(distribution: str) -> str:
    from importlib.metadata import version as installed

    return installed(distribution)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code, of EXIT_CODES."""
    folder = str(Path(__file__).parents[1])
    if folder not in sys.path:  # `python -m` adds it; the installed program needs it for filters in there
        sys.path.append(folder)
    return invoke(wenmai, arguments)


if __name__ == "__main__":
    sys.exit(main())
