"""An invalid setting stops the start with one line that says what is allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings, load_settings
from config.sources import ConfigurationError, section_of
from tests.support.servers.commands import command

MODEL = '[llms.default]\nprovider = "openai"\nmodel = "m"\n'
UNKNOWN = "is refused: there is no such setting."
IN_FILE = "in the configuration file."
CLASS = "llama_index:module:Class"
TABLES = (
    "Tables are [llms.NAME], [sources.NAME] and [tools.NAME]; settings belong above them, outside any table."
)


def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toml: str = "", **environment: str) -> str:
    file = tmp_path / "wenmai.toml"
    file.write_text(toml, encoding="utf-8")
    for name, value in {"WENMAI_CONFIG": str(file), **environment}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as error:
        load_settings()
    return str(error.value)


@pytest.mark.parametrize(
    ("toml", "line"),
    [
        (
            MODEL + 'base_ulr = "x"',
            "LLMS.DEFAULT.BASE_ULR is refused: there is no such setting. Did you mean base_url?",
        ),
        (MODEL + "zzz = 1", f"LLMS.DEFAULT.ZZZ {UNKNOWN}"),
        (
            MODEL + "port = 1",
            f"LLMS.DEFAULT.PORT {UNKNOWN} It does not belong in a table: put it above the first one.",
        ),
        ('[sources.a]\nfolder = "/x"\nexcludes = []', f"SOURCES.A.EXCLUDES {UNKNOWN} Did you mean exclude?"),
        (
            "max_recent_turn = 3",
            f"Unknown setting 'max_recent_turn' {IN_FILE} Did you mean max_recent_turns?",
        ),
        ("[models.x]\nmodel = 'm'", f"Unknown setting 'models' {IN_FILE} {TABLES}"),
        ("[server]\nport = 1", f"Unknown setting 'server' {IN_FILE} {TABLES}"),
        ("[sources.a]\nfoldr = '/x'", f"SOURCES.A.FOLDR {UNKNOWN} Did you mean folder?"),
        ("[sources.a]\ntags = []", "SOURCES.A.FOLDER is missing: it must be text."),
        ("sources = 'x'", "SOURCES = 'x' is refused: it must be a table."),
        ("llms.x = 3", "LLMS.X = 3 is refused: it must be a table, with a line for each of its fields."),
        (
            MODEL + "max_tokens = 0",
            "LLMS.DEFAULT.MAX_TOKENS = 0 is refused: it must be an integer from 1 to 1000000.",
        ),
        (
            MODEL + "max_tokens = true",
            "LLMS.DEFAULT.MAX_TOKENS = True is refused: it must be an integer from 1 to 1000000.",
        ),
        (
            MODEL + "layout = 'x'",
            "LLMS.DEFAULT.LAYOUT = 'x' is refused: it must be one of "
            "auto, one_system, many_system, system_field, flat.",
        ),
        (
            "[tools.a]\nconfirm = 'write'",
            "TOOLS.A is refused: a tools table needs either command (a program and its arguments) or url.",
        ),
        ("[tools.a]\ncomand = ['x']", f"TOOLS.A.COMAND {UNKNOWN} Did you mean command?"),
        (
            "[tools.a]\ncommand = 'x'",
            "TOOLS.A.COMMAND = 'x' is refused: it must be a list.",
        ),
        (
            "[tools.a]\nurl = 'ftp://x'",
            "TOOLS.A.URL = 'ftp://x' is refused: it must be an address like http://127.0.0.1:11434/v1 or "
            "https://api.deepseek.com/v1.",
        ),
        (
            "[tools.a]\ncommand = ['x']\nconfirm = 'yes'",
            "TOOLS.A.CONFIRM = 'yes' is refused: it must be one of never, write, always.",
        ),
        (
            "[tools.a]\ncommand = ['x']\nheaders = {A = 'B'}",
            "TOOLS.A is refused: headers are for url; use env to pass variables to a program.",
        ),
        (
            "[tools.a]\ncommand = ['x']\nenv = ['sk-1']",
            "TOOLS.A.ENV = 'sk-1' is refused: it must be "
            "names of environment variables, such as GITHUB_TOKEN.",
        ),
        (
            "[tools.search_knowledge]\ncommand = ['x']",
            "TOOLS is refused: tools 'search_knowledge' must be named with 1 to 32 letters, digits, - and _, "
            "and not search_knowledge.",
        ),
        (
            "[llms.a]\nprovider = 'opnai'",
            "LLMS.A.PROVIDER = 'opnai' is refused: it must be "
            f"openai, anthropic, gguf, extractive or {CLASS}.",
        ),
    ],
)
def test_an_invalid_setting_in_a_file(
    toml: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refused(tmp_path, monkeypatch, toml) == line


def test_a_file_that_cannot_be_read_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discriminates: a traceback. This one cannot be read by root either."""
    monkeypatch.setenv("WENMAI_CONFIG", "/proc/self/mem")
    with pytest.raises(
        ConfigurationError, match=r"^/proc/self/mem cannot be read \(Input/output error\): let "
    ):
        load_settings()


def test_a_folder_with_the_files_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Discriminates: silently starting with the defaults."""
    monkeypatch.delenv("WENMAI_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    load_settings()
    (tmp_path / "wenmai.toml").mkdir()
    with pytest.raises(ConfigurationError, match=r"^wenmai.toml in the current folder is not a file\.$"):
        load_settings()


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("PORT", "99999", "an integer from 0 to 65535"),
        ("PORT", "", "an integer from 0 to 65535"),
        ("KNOWLEDGE_SHARE", "1.5", "a finite number from 0 to 0.9"),
        ("TOKEN_TIMEOUT_S", "nan", "a finite number above 0"),
        ("LOAD_SAMPLE", "maybe", "true or false"),
        ("LOG_FORMAT", "yaml", "one of auto, text, json"),
        ("EMBEDDING", "bundeld", f"bundled, openai, openai:NAME, sentence-transformers:NAME or {CLASS}"),
        ("QDRANT_URL", "localhost:6333", "an address like http://127.0.0.1:6333"),
        (
            "OPENAI_BASE_URL",
            "localhost",
            "an address like http://127.0.0.1:11434/v1 or https://api.deepseek.com/v1",
        ),
        ("RERANKER_URL", "ftp://x", "an address like http://127.0.0.1:8080/rerank"),
        ("ROOT_PATH", "wenmai/", "a path like /wenmai, without a / at its end"),
        ("CORS_ORIGINS", "*", "an origin like https://www.example.org, without a path"),
        ("CORS_ORIGINS", "file://a.test", "an origin like https://www.example.org, without a path"),
        ("CORS_ORIGINS", "https://a.test/", "an origin like https://www.example.org, without a path"),
        ("QUESTION_FILTERS", "masks", "module:name, of each filter"),
    ],
)
def test_an_invalid_setting_in_the_environment(
    name: str, value: str, allowed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refused(tmp_path, monkeypatch, **{name: value})
    assert line == f"{name} = {value!r} is refused: it must be {allowed}."


def _numeric() -> dict[str, str]:
    """Map each setting to its section: those with a numeric default, and one without."""
    parts = {name: getattr(load_settings(), section) for name, section in section_of(Settings).items()}
    numbers = {name for name, part in parts.items() if type(getattr(part, name)) in (int, float)}
    return {name: section_of(Settings)[name] for name in sorted(numbers | {"memory_expire_days"})}


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("name", _numeric())
def test_true_is_not_a_number(name: str, value: bool) -> None:
    """Discriminates: `conversation_expire_days = true`, taken as one day, and a year of turns deleted."""
    with pytest.raises(ConfigurationError, match=f"{name.upper()}.* is refused: it must be an? "):
        load_settings(**{section_of(Settings)[name]: {name: value}})


@pytest.mark.parametrize("name", section_of(Settings))
@pytest.mark.parametrize("value", [-1e300, {"": []}, [[3]], "\0"])
def test_any_value_of_any_setting_is_accepted_or_refused_in_one_line(name: str, value: Any) -> None:
    """Discriminates: a field whose range cannot be put into words, which ends in a traceback."""
    try:
        load_settings(**{section_of(Settings)[name]: {name: value}})
    except ConfigurationError as error:
        line = str(error)
        assert "\n" not in line
        assert "should" not in line  # pydantic's words
        assert name.upper() in line


def test_an_invalid_start_exits_with_2_and_leaves_nothing(tmp_path: Path) -> None:
    """An option, a filter and a model whose errors show only when their classes are loaded."""
    llm = (
        "[llms.default]\nprovider = 'llama_index:llama_index.core.llms:MockLLM'\noptions = {max_tokns = 3}\n"
    )
    file = tmp_path / "wenmai.toml"
    file.write_text(llm, encoding="utf-8")
    ran = command("serve", WENMAI_CONFIG=str(file), DATA_DIR=str(tmp_path / "data"), PORT="0")
    assert ran.returncode == 2
    assert ran.stderr == (
        "wenmai: 'llama_index:llama_index.core.llms:MockLLM' does not take the option max_tokns. "
        "Did you mean max_tokens?\n"
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["API_KEYS", "ADMIN_API_KEYS"])
@pytest.mark.parametrize("key", ["密钥abc", "two words", "k1，k2", "k\u00a01", "k\t1"])
def test_a_key_that_no_client_can_send_is_named_by_its_position(
    name: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: a start that succeeds although a key always gets 401; the key itself in the line."""
    line = f"{name} is refused: key 2 must be of printable ASCII characters, without spaces: it is sent in "
    line += "a header."
    assert refused(tmp_path, monkeypatch, **{name: f"good;key, {key}"}) == line
    monkeypatch.delenv(name)
    assert refused(tmp_path, monkeypatch, f'{name.lower()} = ["k", {json.dumps(key)}]') == line
    assert (
        refused(tmp_path, monkeypatch, f'{name.lower()} = ["k", ""]') == line
    )  # a client that sends none has it
