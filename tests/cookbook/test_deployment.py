"""The unit and the proxies' files are accepted by their programs, and agree with the settings."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from config.settings import Settings
from config.sources import section_of
from tests.cookbook.pages import COOKBOOK

UNIT = (COOKBOOK / "wenmai.service").read_text(encoding="utf-8")
NGINX = (COOKBOOK / "nginx.conf").read_text(encoding="utf-8")
CADDY = (COOKBOOK / "Caddyfile").read_text(encoding="utf-8")
SERVER, MODELS = Settings.model_fields["server"], Settings.model_fields["models"]
ROOT = COOKBOOK.parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSED = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]["wenmai"]
LAST_STEPS_S = 10  # the last frames, the store, the connections


def default(name: str) -> float:
    field = next(
        section.annotation.model_fields[name]  # type: ignore[union-attr]
        for section in (SERVER, MODELS)
        if name in section.annotation.model_fields  # type: ignore[union-attr]
    )
    return float(field.default)


def accepted(*command: str, **environment: str) -> str:
    """What the program prints about the file; it must succeed."""
    environment["PATH"] = os.environ["PATH"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr + ended.stdout


def needs(*programs: str) -> None:
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        pytest.skip(f"not here: {', '.join(missing)}")


def test_the_unit_agrees_with_the_settings() -> None:
    parser = configparser.RawConfigParser(strict=False)  # Environment= occurs twice in it
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT)
    service = parser["Service"]
    assert int(service["TimeoutStopSec"]) >= default("shutdown_grace_s") + LAST_STEPS_S
    variables = set(re.findall(r"^Environment=(\w+)=", UNIT, re.M))
    assert "DATA_DIR" in variables
    assert variables - {"WENMAI_CONFIG"} <= {name.upper() for name in section_of(Settings)}
    assert f"DATA_DIR=/var/lib/{service['StateDirectory']}\n" in UNIT


def test_the_container_agrees_with_the_settings_and_runs_what_the_service_runs() -> None:
    """Discriminates: a setting that was renamed; a stop that Docker cuts short; data outside the volume."""
    (command,) = re.findall(r"^CMD (.*)", DOCKERFILE, re.M)
    assert f"ExecStart={' '.join(json.loads(command))}\n" in UNIT
    (line,) = re.findall(r"^ENV (.*)", DOCKERFILE, re.M)
    image = dict(pair.split("=", 1) for pair in line.split())
    settings = {name.upper() for name in section_of(Settings)}
    assert {*image, *COMPOSED["environment"]} - {"PATH"} <= settings
    for name in ("DATA_DIR", "HOST", "PORT"):
        assert str(COMPOSED["environment"][name]) == image[name]
    assert f"\nVOLUME {image['DATA_DIR']}\nEXPOSE {image['PORT']}\n" in DOCKERFILE
    assert COMPOSED["volumes"] == [f"data:{image['DATA_DIR']}"]
    assert COMPOSED["ports"][0].endswith(f":{image['PORT']}")
    assert int(COMPOSED["stop_grace_period"].removesuffix("s")) >= default("shutdown_grace_s") + LAST_STEPS_S


def test_the_image_has_the_files_that_the_server_needs() -> None:
    """Discriminates: a new package that .dockerignore leaves out; a Python other than the oldest one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M)
    files = {file for line in copied for file in line.split()} - {"."}
    assert [path for path in sent | files if not (ROOT / path).exists()] == []
    packages = {name.split(".")[0] for name in project["tool"]["setuptools"]["packages"]}
    assert packages | {project["project"]["readme"], "docs/guide"} <= sent
    assert {*re.findall(r"^FROM python:(\S+)-slim", DOCKERFILE, re.M)} == {
        project["project"]["requires-python"].removeprefix(">=")
    }


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """Discriminates: a misspelt key or value, of which systemd itself only warns."""
    needs("systemd-analyze")
    here = UNIT.replace("/srv/wenmai/.venv/bin/wenmai", sys.executable).replace("/srv/wenmai", str(tmp_path))
    (tmp_path / "wenmai.service").write_text(here, encoding="utf-8")
    assert accepted("systemd-analyze", "verify", str(tmp_path / "wenmai.service")) == ""


def test_the_nightly_backup_has_the_settings_and_keys_of_the_service(tmp_path: Path) -> None:
    """Discriminates: a backup of another store than the service's, or one that the server refuses."""
    backup = (COOKBOOK / "wenmai-backup.service").read_text(encoding="utf-8")
    same = re.compile(r"^(?:User|WorkingDirectory|Environment|EnvironmentFile|StateDirectory|UMask)=.*", re.M)
    assert same.findall(backup) == same.findall(UNIT)
    needs("systemd-analyze")
    backup = backup.replace("/srv/wenmai/.venv/bin/wenmai", sys.executable)
    (tmp_path / "wenmai-backup.service").write_text(backup.replace("/srv/wenmai", str(tmp_path)), "utf-8")
    timer = shutil.copy(COOKBOOK / "wenmai-backup.timer", tmp_path)
    assert accepted("systemd-analyze", "verify", str(timer), str(tmp_path / "wenmai-backup.service")) == ""


DAYS = "+0x4320"  # the same each minute, for three days
ALERTS: tuple[tuple[dict[str, str], set[str]], ...] = (
    ({'up{job="wenmai"}': f"0{DAYS}"}, {"WenmaiDown", "WenmaiNoBackup"}),
    ({}, {"WenmaiDown", "WenmaiNoBackup"}),
    ({'up{job="wenmai"}': f"1{DAYS}", 'wenmai_operation_last_timestamp_seconds{kind="backup"}': f"0{DAYS}"},
     {"WenmaiNoBackup"}),
    ({'up{job="wenmai"}': f"1{DAYS}",
      'wenmai_operation_last_timestamp_seconds{kind="backup"}': f"180000{DAYS}"}, set()),
    ({'up{job="wenmai"}': f"1{DAYS}",
      'wenmai_operation_last_timestamp_seconds{kind="backup"}': f"180000{DAYS}",
      "wenmai_sync_sources_failing": f"1{DAYS}"}, {"WenmaiFolderFails"}),
)  # fmt: skip


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("series", "firing"), ALERTS)
def test_the_alerts_of_the_guide_fire(
    tmp_path: Path, language: str, series: dict[str, str], firing: set[str]
) -> None:
    """After three days. Discriminates: alerts that are silent when no server can be scraped any more."""
    needs("promtool")
    guide = COOKBOOK.parent / "guide" / language / "operations.md"
    (rules,) = re.findall(r"^```yaml\n(groups:.*?)^```$", guide.read_text(encoding="utf-8"), re.M | re.S)
    (tmp_path / "rules.yml").write_text(rules, encoding="utf-8")
    names = re.findall(r"alert: (\w+)", rules)
    assert firing <= {*names}
    tested = [
        {"eval_time": "72h", "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
         "exp_samples": [{"labels": "{}", "value": int(name in firing)}]}
        for name in names
    ]  # fmt: skip
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": tested,
    }
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": [test]}), "utf-8")
    accepted("promtool", "test", "rules", str(tmp_path / "test.yml"))


def test_the_proxies_let_everything_through_that_wenmai_accepts() -> None:
    """Discriminates: another size limit, a timeout shorter than an answer takes, buffered pieces."""
    size = int(default("max_upload_bytes"))
    assert f"client_max_body_size {size};" in NGINX
    assert f"max_size {size // 1_000_000}MB\n" in CADDY
    (patience,) = re.findall(r"proxy_read_timeout (\d+)s;", NGINX)
    assert int(patience) > default("answer_timeout_s")
    assert "proxy_buffering off;" in NGINX
    assert "limit_req_status 429;" in NGINX
    assert "flush_interval -1\n" in CADDY


def test_nginx_accepts_its_file(tmp_path: Path) -> None:
    needs("nginx", "openssl")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    accepted(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=wenmai.example.org",
        "-keyout", str(key), "-out", str(certificate),
    )  # fmt: skip
    site = re.sub(r"/etc/\S+fullchain.pem", str(certificate), NGINX)
    site = re.sub(r"/etc/\S+privkey.pem", str(key), site)
    site = re.sub(r"(?<=listen )(?=\d)", "18", site)  # unprivileged ports
    main = f"pid {tmp_path}/pid; events {{}}\nhttp {{ access_log off; {site} }}\n"
    (tmp_path / "nginx.conf").write_text(main, encoding="utf-8")
    log = f"error_log {tmp_path}/error.log;"
    accepted("nginx", "-t", "-e", f"{tmp_path}/error.log", "-g", log, "-c", str(tmp_path / "nginx.conf"))


def test_caddy_accepts_its_file(tmp_path: Path) -> None:
    needs("caddy")
    file = str(COOKBOOK / "Caddyfile")
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    accepted("caddy", "validate", "--adapter", "caddyfile", "--config", file, **home)
