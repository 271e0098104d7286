"""Sentences for people, in Chinese and English."""

from __future__ import annotations

from config.prompt_library import Language

_TEXTS: dict[str, tuple[str, str]] = {
    "retrieving": ("正在进行混合检索...", "Searching the knowledge base..."),
    "reranking": ("正在重排候选资料...", "Ranking what was found..."),
    "filtering": ("正在筛选资料...", "Keeping what is relevant..."),
    "nothing_found": ("资料中没有找到相关内容。", "Nothing relevant was found in the documents."),
    "nothing_found_yet": (
        "暂时没有找到相关内容:还有文档正在读入,稍后再问可能会有结果。",
        "Nothing relevant yet: documents are still being read in. Ask again shortly.",
    ),
    "context_dropped": (
        "上下文放不下全部内容,已省略较早或次要的部分。",
        "Not everything fits into the model's window: older or lesser parts were left out.",
    ),
    "turns_unreadable": (
        "本会话有无法读取的轮次,已跳过。",
        "Some turns of this session cannot be read and were skipped.",
    ),
    "generating": ("正在生成回答...", "Writing the answer..."),
    "retrying": ("模型服务暂时没有应答,正在重试...", "The model's server did not answer, trying again..."),
    "answer_cut": (
        "回答达到了长度上限,在此截断。",
        "The answer met a length limit and ends here.",
    ),
    "finished": ("完成", "Finished"),
    "internal": (
        "服务器内部错误,请重试;若仍然出现,请把请求编号告诉管理员。",
        "Something went wrong here. Try again; if it stays, give the request id to the operator.",
    ),
    "no_answer": ("模型没有给出任何内容,请重试。", "The model returned no text. Try again."),
    "was_failed": ("这一轮当时失败了,可以重试。", "This turn failed. It can be sent again."),
    "was_interrupted": (
        "这一轮在完成前中断了,可以重试。",
        "This turn was interrupted before it was complete. It can be sent again.",
    ),
    "was_running": (
        "这一轮正由另一个进程处理,请稍后再看。",
        "This turn is being answered by another process. Look again shortly.",
    ),
    "not_stored": (
        "回答未能保存到存储中,请再次发送以保存。",
        "The answer could not be stored. Send the question again to keep it.",
    ),
}


def say(key: str, language: Language) -> str:
    """The sentence for `key`. Raises KeyError when there is none."""
    chinese, english = _TEXTS[key]
    return chinese if language == "zh" else english
