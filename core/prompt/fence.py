"""The fence around text that is data: tags with a code drawn for the request, and text between them that can
imitate neither these tags nor the tokens of a chat template.

What looks like either gets a joiner without width behind its first character, one more where it has some
already, so that `restored` gives the text back exactly. A person reads no difference; a tokenizer finds no
control token, since these are matched character by character.
"""

from __future__ import annotations

import re
import secrets
from enum import StrEnum
from typing import Any

JOINER = "\u200d"
CODE_DIGITS = 6  # a document of a thousand guesses meets the code of one request in 1,000
ANY_CODE = "0" * CODE_DIGITS  # where tokens are only counted


class Kind(StrEnum):
    """What stands in a fence; the name of its tag without the code."""

    PASSAGE = "passage"
    MEMORY = "memory"
    SUMMARY = "summary"
    HISTORY = "history"
    TOOL_RESULT = "tool_result"


_TAGS = "|".join((*Kind, "nearest", "question", "answer", "length"))
# Of the templates in use: control tokens in angle brackets, beside those with a bar, which are any of them.
_ANGLED = (
    "s|bos|eos|pad|unk|mask|cls|sep|sop|eop|eoh|eoa|eod|eom|eot|image|img|video|audio|box|ref|quad|"
    "(?:start|end)_of_(?:turn|image|audio|text|sentence)|(?:begin|end)of(?:text|sentence)|"
    "think|thinking|tools?|tool_calls?|tool_response|tool_outputs?|minimax:tool_call|"
    "seed:[a-z_:]+|(?:reserved|unused|extra_id|SPECIAL)_?[0-9]+|(?i:SYS)>?|(?i:INST)"
)
_SQUARE = (
    "(?i:INST)|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|MODEL_SETTINGS|ARGS|"
    "CALL_ID|THINK|IMG|IMG_BREAK|IMG_END|AUDIO|BEGIN_AUDIO|PREFIX|MIDDLE|SUFFIX|[gs]?MASK|CLS|SEP|PAD|UNK|"
    "BOS|EOS"
)
_BETWEEN = rf"[\s/\\{JOINER}\u200b\u2060\ufeff]*+"
_ANGLE = (
    rf"(?<=[<＜‹〈⟨])(?={{}}{_BETWEEN}(?:(?i:{_TAGS})(?![a-z])"  # tags of ours, however they are written
    rf"|(?:{_ANGLED})\s*+[>＞›〉⟩]|[|¦][^\s>|=]|｜|[\w▁]{{1,40}}+\s*+[|｜]>))"  # <s> · <|user|> · <turn|>
)
_BRACKET = rf"(?<=[\[［])(?={{}}{_BETWEEN}(?:(?:{_SQUARE})\s*+[\]］]|[|｜]\w|e~\[))"  # [/INST] · [|system|]
_TILDE = rf"(?<=\])(?={{}}{JOINER}*+~!?b)"  # MiniMax writes ]~b]
_OPENINGS = "<[]＜‹〈⟨［"
_LOOK_ALIKE = (
    rf"[{re.escape(_OPENINGS)}](?:{_ANGLE}|{_BRACKET}|{_TILDE})"  # the search is for one set of characters
)
_FIRST = re.compile(_LOOK_ALIKE.replace("{}", ""))
_JOINED = re.compile(f"({_LOOK_ALIKE.replace('{}', JOINER)}){JOINER}")


def new_code() -> str:
    """Digits alone: every code takes as many tokens as another, so that the same prompt always fits."""
    return f"{secrets.randbelow(10**CODE_DIGITS):0{CODE_DIGITS}}"


def neutral(text: str) -> str:
    """Text that is neither a tag of the prompt's nor a control token of a model."""
    if not any(opening in text for opening in _OPENINGS):  # most prose; ten times as fast
        return text
    return _FIRST.sub(rf"\g<0>{JOINER}", text)


def neutral_json(value: Any) -> Any:
    """The same of every text in a JSON value."""
    match value:
        case str():
            return neutral(value)
        case list():
            return [neutral_json(each) for each in value]
        case dict():
            return {neutral(name): neutral_json(each) for name, each in value.items()}
        case _:
            return value


def restored(text: str) -> str:
    """What `neutral` was made of."""
    return _JOINED.sub(r"\1", text)


def tag(kind: Kind, code: str) -> str:
    return f"{kind}-{code}" if code else kind.value


def fenced(kind: Kind, code: str, text: str) -> str:
    """Any text between the tags of this request; without a `code` there are none."""
    return between(kind, code, neutral(text))


def between(kind: Kind, code: str, text: str) -> str:
    """The same for a text that is neutral already."""
    return f"<{tag(kind, code)}>\n{text}\n</{tag(kind, code)}>" if code else text
