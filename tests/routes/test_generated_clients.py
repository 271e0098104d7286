"""Client generators accept the description unchanged: every route, without a warning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from routes.app import create_app
from tests.support.servers.app import make_settings

TYPESCRIPT = Path(__file__).parent / "clients/node_modules/.bin/openapi-typescript"

pytestmark = pytest.mark.full("generates two clients, and compiles them")


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return create_app(make_settings(tmp_path_factory.mktemp("described"))).openapi()


@pytest.fixture
def described(spec: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


def generate(*command: str | Path) -> str:
    """Return its whole output. The Python generator calls ruff, which is installed beside the interpreter."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    ended = subprocess.run(
        list(map(str, command)),
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_a_python_client_has_every_route(spec: dict[str, Any], described: Path) -> None:
    """Discriminates: a reference into `$defs`; two schemas of one name."""
    client = described.parent / "client"
    config = described.parent / "config.json"  # the generator only knows binary content of this type
    as_bytes = dict.fromkeys(("image/png", "image/jpeg"), "application/octet-stream")
    config.write_text(json.dumps({"content_type_overrides": as_bytes}))
    out = ("--output-path", client, "--meta", "none", "--fail-on-warning")
    options = ("--path", described, "--config", config, *out)
    output = generate(sys.executable, "-m", "openapi_python_client", "generate", *options)
    assert "arning" not in output
    made = {file.stem for file in client.glob("api/*/*.py")} - {"__init__"}
    assert made == {each["operationId"] for methods in spec["paths"].values() for each in methods.values()}


@pytest.mark.skipif(not TYPESCRIPT.exists(), reason="openapi-typescript is not installed")
def test_a_typescript_client_has_every_route(spec: dict[str, Any], described: Path) -> None:
    types = described.parent / "api.ts"
    output = generate(TYPESCRIPT, described, "--output", types)
    assert "arn" not in output.replace("openapi-typescript", "")
    text = types.read_text(encoding="utf-8")
    assert [path for path in spec["paths"] if f'"{path}": {{' not in text] == []
