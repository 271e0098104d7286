"""Every script by its name, which is also the name of the model that plays it."""

from __future__ import annotations

from tests.faults.models.script import Script
from tests.faults.models.scripts_anthropic import CLAUDE
from tests.faults.models.scripts_garbage import GARBAGE
from tests.faults.models.scripts_openai import OPENAI

SCRIPTS: dict[str, Script] = {script.name: script for script in (*OPENAI, *GARBAGE, *CLAUDE)}


def scripts_of(fault: str) -> list[Script]:
    return [script for script in SCRIPTS.values() if script.fault == fault]
