"""No output contains a secret: a canary in every field for one, in misspelt fields and in wrong places."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import get_args

import psutil
import pytest
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from config.logging import configure_logging
from config.secrets import HIDDEN, Mask, is_secret_name, looks_like_key, mask_of
from config.settings import ModelSettings, Settings, ToolsSettings, load_settings
from config.sources import ConfigurationError
from core.errors import WenmaiError
from scripts import serve
from scripts.commands import doctor
from scripts.commands.maintenance import invoke
from tests.support.servers.app import CHAT, HASHING, SCRIPTED, open_app
from tests.support.servers.commands import command
from tests.support.servers.server import running_server

CANARY = "sk-canary-4f9b2c7d1e8a6053"
PLAIN = "canary4f9b2c7d1e8a6053xyz"  # a key that does not look like one
DEAD = "http://127.0.0.1:9/v1"
QUICK = {"EMBEDDING": HASHING, "LOAD_SAMPLE": "false", "PORT": "0", "HOST": "127.0.0.1"}

KEYS = ("openai_api_key", "qdrant_api_key", "embedding_api_key", "reranker_api_key")
LISTS = ("api_keys", "admin_api_keys")
URLS = ("openai_base_url", "qdrant_url", "embedding_base_url", "reranker_url")
MODEL = f'[llms.m]\nprovider = "openai"\nmodel = "m"\nbase_url = "{DEAD}"\n'
PROGRAM = 'command = ["/nowhere"]\n'
ADDRESS = 'url = "http://127.0.0.1:9/mcp"\n'
PLUGIN = f'[llms.m]\nprovider = "{SCRIPTED}"\n'


def files(key: str) -> Iterator[tuple[str, str]]:
    """What wenmai.toml contains, by case."""
    yield from files_of_settings(key)
    yield from files_of_models(key)
    yield from files_of_options(key)
    yield from files_of_tools(key)
    yield "not TOML", f'openai_api_key = "{key}'
    yield "key twice", f'openai_api_key = "{key}"\nopenai_api_key = "{key}"'
    yield "source", f'[sources.docs]\nfolder = "/srv"\napi_key = "{key}"'


def files_of_settings(key: str) -> Iterator[tuple[str, str]]:
    for name in KEYS:
        yield name, f'{name} = "{key}"'
        yield f"{name} as a table", f'{name} = {{ value = "{key}" }}'
        yield f"{name} with a line break", f'{name} = "{key}\\nmore"'
        yield f"{name} in Chinese", f'{name} = "{key}密钥"'
    for name in LISTS:
        yield name, f'{name} = ["{key}"]'
        yield f"{name} as a table", f'{name} = [{{ value = "{key}" }}]'
        yield f"{name} on a public host", f'{name} = ["{key}"]\nhost = "0.0.0.0"'
    for name in ("openai_api_ky", "apikey", "qdrant_key", "api_key", "admin_api_kyes", "embeding_api_key"):
        yield f"misspelt {name}", f'{name} = "{key}"'
    for name in URLS:
        for host in ("127.0.0.1:9/v1", "127.0.0.1:port", "", "[::1", "two words", "ｈ℀st"):
            yield f"{name} at {host!r}", f'{name} = "http://user:{key}@{host}"'
        yield f"key as {name}", f'{name} = "{key}"'
        yield f"key in the query of {name}", f'{name} = "{DEAD}?api_key={key}"'
    for name in (
        "embedding", "reranker", "layout", "cleanup_cron", "timezone", "log_level", "port", "qa_log",
        "prompts_dir", "library_dir", "blocked_words", "question_filters", "summary_model_id",
    ):  # fmt: skip
        yield f"key as {name}", f'{name} = "{key}"'


def files_of_models(key: str) -> Iterator[tuple[str, str]]:
    for field in ("api_key", "api_ky", "apikey", "token", "key", "base_url", "layout", "options"):
        yield (
            f"{field} of a model",
            MODEL.replace("base_url", "x_url", field == "base_url").replace(f'x_url = "{DEAD}"\n', "")
            + f'{field} = "{key}"',
        )
    yield "key as tokenizer", MODEL + f'tokenizer = "{key}"'
    yield "key as provider", f'[llms.m]\nprovider = "{key}"'
    yield "no model", f'[llms.m]\nprovider = "openai"\napi_key = "{key}"'
    yield "no provider", f'[llms.m]\nmodel = "m"\napi_key = "{key}"'
    yield "api_key_env that is a key", MODEL + f'api_key_env = "{key}"'
    yield "login of a model", MODEL.replace("127.0.0.1:9", f"user:{key}@127.0.0.1:9")
    yield "broken login of a model", MODEL.replace("127.0.0.1:9", f"user:{key}@127.0.0.1:x")


def files_of_options(key: str) -> Iterator[tuple[str, str]]:
    for option in ("api_key", "api_ky", "default_headers", "extra_headers", "Authorization"):
        value = f'{{ Authorization = "Bearer {key}" }}' if "headers" in option else f'"{key}"'
        yield f"option {option}", MODEL + f"options = {{ {option} = {value} }}"
        yield f"option {option} of a class", PLUGIN + f"options = {{ {option} = {value} }}"
        yield f"option {option} of an embedding", f"embedding_options = {{ {option} = {value} }}"
    yield "option of the wrong type of a class", f'embedding_options = {{ embed_batch_size = "{key}" }}'
    yield (
        "unknown option of our own class",
        f'embedding = "openai:m"\nembedding_options = {{ api_ky = "{key}" }}',
    )
    yield (
        "a class that is not there",
        f'[llms.m]\nprovider = "llama_index:no:Such"\noptions = {{ k = "{key}" }}',
    )


def files_of_tools(key: str) -> Iterator[tuple[str, str]]:
    for name, fields in {
        "key as env": f'{PROGRAM}env = ["{key}"]',
        "env with its value": f'{PROGRAM}env = {{ GITHUB_TOKEN = "{key}" }}',
        "argument": f'command = ["/nowhere", "--token", "{key}"]',
        "token": f'{PROGRAM}token = "{key}"',
        "api_ky": f'{PROGRAM}api_ky = "{key}"',
        "allow": f'{PROGRAM}allow = "{key}"',
        "key as the variable of a header": f'{ADDRESS}headers = {{ Authorization = "{key}" }}',
        "header with its value": f'{ADDRESS}headers = {{ Authorization = "Bearer {key}" }}',
        "login": f'url = "http://user:{key}@127.0.0.1:9/mcp"',
        "broken login": f'url = "http://user:{key}@127.0.0.1:x/mcp"',
        "query": f'url = "http://127.0.0.1:9/mcp?token={key}"',
    }.items():
        yield f"{name} of tools", f"[tools.t]\n{fields}"


def test_every_secret_setting_has_a_canary() -> None:
    """Discriminates: a setting for a key, added later, that gets no canary."""
    sections = [each.annotation for each in Settings.model_fields.values()]
    fields = {name: field for each in sections if each for name, field in each.model_fields.items()}
    tables = [each for each in map(table_of, fields.values()) if each is not None]
    assert {each.__name__ for each in tables} == {"SourceSettings", "LLMSettings", "ToolSettings"}
    secret = {name for name, field in fields.items() if "Secret" in str(field.annotation)}
    assert secret == {*KEYS, *LISTS}
    assert {name for name, field in fields.items() if name.endswith("url")} == {*URLS}


def table_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the table of a setting whose tables have names of their own."""
    kind = get_args(field.annotation)[-1:]
    return kind[0] if kind and isinstance(kind[0], type) and issubclass(kind[0], BaseModel) else None


def test_values_of_a_tables_variables_are_hidden_and_their_names_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Discriminates: "needs the environment variable ***"; HOME hidden in every path; a token in the log; the
    key of a model that is added later."""
    for name in ("HOOK", "GITHUB_TOKEN", "LATER_API_KEY"):
        monkeypatch.setenv(name, f"{name.lower()} of 4f9b2c7d")
    monkeypatch.setenv("HOME", "/srv/wenmai")
    program = {"command": ["x"], "env": ["GITHUB_TOKEN", "HOME"]}
    tools = {"a": program, "b": {"url": DEAD, "headers": {"Authorization": "HOOK"}}}
    mask = mask_of(ToolsSettings.model_validate({"tools": tools}))
    shown = "HOOK, GITHUB_TOKEN and LATER_API_KEY in /srv/wenmai"
    assert mask(f"{shown}: hook of 4f9b2c7d, github_token of 4f9b2c7d, later_api_key of 4f9b2c7d") == (
        f"{shown}: {HIDDEN}, {HIDDEN}, {HIDDEN}"
    )


CASES = [(f"{name} {key}", text) for key in (CANARY, PLAIN) for name, text in files(key)]


def raised(error: BaseException) -> str:
    """Everything a program can read from the error, its causes included."""
    each: list[str] = []
    link: BaseException | None = error
    while link is not None:
        each += [str(link), repr(link), *map(repr, link.args), *traceback.format_exception(link)]
        link = link.__cause__ or link.__context__
    return "\n".join(each)


@pytest.fixture(scope="module")
def settings_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("secrets")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**QUICK, "DATA_DIR": str(folder / "data")}.items():
            patch.setenv(name, value)
        patch.setenv("WENMAI_CONFIG", str(folder / "wenmai.toml"))
        for name in ("EMBEDDING", "PORT", "HOST"):
            patch.delenv(name)
        patch.chdir(folder)  # a key used as a path that gets created: qa_log
        yield folder


def written(folder: Path, text: str) -> None:
    quick = [f'embedding = "{HASHING}"'] if "embedding =" not in text else []
    (folder / "wenmai.toml").write_text("\n".join([*quick, text]), "utf-8")


@pytest.mark.parametrize(("name", "text"), CASES, ids=[name for name, _ in CASES])
def test_neither_a_refusal_nor_the_settings_show_a_secret(
    name: str, text: str, settings_folder: Path
) -> None:
    """Discriminates: pydantic's input_value, in the message, the repr or a chained error; a table printed
    because another of its fields is wrong; options and addresses in the settings' repr."""
    written(settings_folder, text)
    try:
        settings = load_settings()
    except ConfigurationError as error:
        shown = raised(error)
    else:
        shown = f"{settings} {settings!r} {settings.models!r} {settings.models.llms!r}"
    assert_hidden(name, shown)


def assert_hidden(name: str, shown: str) -> None:
    assert CANARY not in shown
    if not name.startswith("key as "):  # such a value may be taken for a name
        assert PLAIN not in shown


async def started(settings: Settings, data: Path) -> str:
    """Return the error of the start or the server's reply to a client, and the logs below the data folder."""
    settings = settings.model_copy(update={"store": settings.store.model_copy(update={"data_dir": data})})
    try:
        async with open_app(settings) as app:
            asked = await app.client.post(CHAT, json={"question": "How many days?", "stream": False})
            paths = ("/models", "/settings/public", "/health/ready", "/metrics", "/openapi.json")
            read = [(await app.client.get(path)).text for path in paths]
            shown = "\n".join([asked.text, repr(app.container.settings), *read])
    except WenmaiError as error:
        shown = raised(error)
    return "\n".join([shown, *await asyncio.to_thread(logs_below, data)])


def logs_below(data: Path) -> list[str]:
    return [path.read_text("utf-8") for path in data.rglob("*") if path.suffix in (".log", ".jsonl")]


async def shown_everywhere(folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """The output of the start, in this process, and of doctor."""
    configure_logging("debug", Mask())
    try:
        settings = load_settings()
    except ConfigurationError as error:
        outputs = [raised(error), f"{await asyncio.to_thread(serve.main)}"]
    else:
        configure_logging("debug", mask_of(settings))
        outputs = [await started(settings, folder / "data")]
    for options in ([], ["--json", "--fast"]):
        outputs.append(f"{await asyncio.to_thread(invoke, doctor.doctor, options)}")
    return "\n".join([*outputs, *capfd.readouterr()])


SOME = ("misspelt apikey", "option of the wrong type of a class")


@pytest.mark.parametrize("name", SOME)
async def test_nothing_that_the_start_or_doctor_prints_shows_a_secret(
    name: str, settings_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: a class's own error about its options, which repeats them; an address with its login."""
    written(settings_folder, dict(files(PLAIN))[name])
    assert_hidden(name, await shown_everywhere(settings_folder, capfd))


@pytest.mark.full("starts in this process with some fifty configurations")
@pytest.mark.parametrize(("name", "text"), list(files(PLAIN)), ids=[name for name, _ in files(PLAIN)])
async def test_nothing_shows_a_secret_whatever_setting_holds_it(
    name: str, text: str, settings_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As above, for every place that the settings accept."""
    written(settings_folder, text)
    with suppress(ConfigurationError):
        load_settings()
        assert_hidden(name, await shown_everywhere(settings_folder, capfd))


@pytest.mark.full("runs the server and doctor as processes of their own")
def test_processes_show_no_secret_to_other_users(tmp_path: Path) -> None:
    """Discriminates: a key on the command line of a child, where ps shows it; a traceback of Python's own."""
    secrets = {name.upper(): PLAIN for name in KEYS} | {"ADMIN_API_KEYS": PLAIN, "OPENAI_BASE_URL": DEAD}
    with running_server(tmp_path / "data", **QUICK, **secrets) as server:
        parent = psutil.Process(server.pid)
        lines = [" ".join(each.cmdline()) for each in (parent, *parent.children(recursive=True))]
        looked = command("wenmai", "doctor", DATA_DIR=str(tmp_path / "data"), **QUICK, **secrets)
    file = tmp_path / "wenmai.toml"
    file.write_text(f'embedding = "{HASHING}"\nembedding_options = {{ embed_batch_size = "{PLAIN}" }}')
    crashed = command("serve", WENMAI_CONFIG=str(file), DATA_DIR=str(tmp_path / "other"), PORT="0")
    assert (crashed.returncode, len(crashed.stderr.splitlines())) == (2, 1), crashed.stderr
    assert "answered in" in looked.stdout
    outputs = [looked.stdout, looked.stderr, crashed.stdout, crashed.stderr, *lines]
    assert len(lines) > 1
    assert PLAIN not in "\n".join(outputs)


def test_third_party_texts_lose_secrets_and_what_looks_like_one() -> None:
    """Discriminates: hiding only sk-…; removing a short secret from the middle of words; taking a word for a
    key."""
    settings = ModelSettings.model_validate(
        {"openai_api_key": PLAIN, "embedding_api_key": "ant"}
        | {
            "openai_base_url": "http://me:pass%21word@h/v1",
            "embedding_options": {"headers": {"x": "abcdefgh1"}},
        }
    )
    mask = mask_of(settings)
    for text in (
        PLAIN,
        "pass!word",
        "pass%21word",
        "abcdefgh1",
        CANARY,
        "Bearer abc.def",
        "sk-ab***********xyz9",
    ):
        assert mask(f"the key {text} is wrong") == f"the key {HIDDEN} is wrong", text
    assert mask("http://user:pw@host/v1?api_key=abc&x=1") == f"http://{HIDDEN}host/v1?{HIDDEN}&x=1"
    assert mask("an important ant") == f"an important {HIDDEN}"
    assert mask("The model `qwen3:8b` does not exist; task-oriented, max_tokens: 5") == (
        "The model `qwen3:8b` does not exist; task-oriented, max_tokens: 5"
    )


def test_secrets_are_recognised_by_name_and_by_form() -> None:
    """Discriminates: MAX_TOKENS hidden as if it were a token; a model's name refused as a key."""
    assert all(
        map(
            is_secret_name, ("api_ky", "APIKEY", "QDRANT_API_KEY", "access_token", "headers", "Authorization")
        )
    )
    assert not any(
        map(is_secret_name, ("max_tokens", "chunk_tokens", "tokenizer", "token_timeout_s", "model"))
    )
    assert looks_like_key(CANARY)
    assert looks_like_key(f"openai:{CANARY}")
    assert not any(map(looks_like_key, ("gpt-4o-mini", "sk-learn-embeddings", "hf-model", "qwen3:8b", PLAIN)))


def test_pydantic_models_do_not_print_the_values_they_refuse() -> None:
    """For code that builds a section without `load_settings`."""
    with pytest.raises(ValidationError) as refused:
        ModelSettings.model_validate({"openai_api_ky": CANARY, "openai_base_url": CANARY})
    assert CANARY not in str(refused.value)
