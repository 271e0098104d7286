"""Fixed texts in Chinese and English, for people and for models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from config.sources import did_you_mean
from core.conversation.turns import TurnStage
from core.errors import BadRequestError
from core.images import MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS, MAX_IMAGES
from core.text import Language

PROMPTS = Path(__file__).parents[1] / "config" / "prompts"
PromptRole = Literal["knowledge", "general", "unsearched", "searching"]

_TEXTS: dict[str, tuple[str, str]] = {
    # what people read during a stage, in a stream's STATUS events and on the page
    TurnStage.RETRIEVING: ("正在进行混合检索...", "Searching the knowledge base..."),
    TurnStage.REWRITING: ("正在结合上文改写问题……", "Rewriting the question from its context..."),
    TurnStage.RERANKING: ("正在重排候选资料……", "Ranking the candidates..."),
    TurnStage.FILTERING: ("正在筛选资料……", "Selecting the relevant passages..."),
    TurnStage.REMEMBERING: ("想起了以前的对话。", "Recalled from earlier conversations."),
    TurnStage.GENERATING: ("正在生成回答……", "Writing the answer..."),
    TurnStage.TOOL: ("正在使用工具……", "Using a tool..."),
    TurnStage.RETRYING: (
        "模型服务暂时没有应答，正在重试……",
        "The model's server did not answer, trying again...",
    ),
    TurnStage.FINISHED: ("完成", "Finished"),
    "rewritten": ("正在用改写后的问题再检索一次……", "Searching again with the rewritten question..."),
    "reranker_unavailable": (
        "重排服务暂时不可用，本轮改用内置的重排。",
        "The reranker cannot be reached; the built-in one was used instead.",
    ),
    "tool_waiting": ("这次工具调用需要你批准。", "This tool call needs your approval."),
    "tool_running": ("正在调用工具……", "Calling a tool..."),
    "tool_done": ("工具已返回结果。", "The tool returned a result."),
    "tool_failed": ("工具调用失败。", "The tool call failed."),
    "tool_refused": ("这次工具调用已被拒绝。", "The tool call was refused."),
    "tools_unavailable": (
        "有工具服务器暂时不可用，本轮没有它的工具。",
        "A tool server is unavailable: this answer was written without its tools.",
    ),
    "tools_missing": (
        "请求里有的工具，服务器上没有这个名字。",
        "A tool of the request does not exist: its server has none of this name.",
    ),
    "tools_unapproved": (
        "有工具调用没有及时得到批准，没有执行。",
        "A tool call was not approved in time and was not made.",
    ),
    "too_many_tool_steps": (
        "模型一直在调用工具，没有写出回答。请把问题拆小，或调高 MAX_TOOL_STEPS。",
        "The model kept calling tools and wrote no answer. Split the question up, or raise MAX_TOOL_STEPS.",
    ),
    "no_tools_offered": (
        "模型想调用工具，但本轮没有可用的工具。",
        "The model wanted to call a tool, but none was available to it.",
    ),
    "tool_calls_unreadable": (
        "模型想调用工具，但它的请求无法读懂。",
        "The model wanted to call a tool, but its request could not be read.",
    ),
    "not_searched": ("这条消息没有检索资料。", "The documents were not searched for this message."),
    "nothing_found": ("资料中没有找到相关内容。", "Nothing relevant was found in the documents."),
    "nothing_found_within": (
        "在所限定的范围内没有找到相关内容。",
        "Nothing relevant was found within the limits of the question.",
    ),
    "nothing_found_yet": (
        "暂时没有找到相关内容：还有文档正在读入，稍后再问可能会有结果。",
        "Nothing relevant found yet: documents are still being read. Ask again shortly.",
    ),
    "context_dropped": (
        "上下文放不下全部内容，已省略较早或次要的部分。",
        "Not everything fits into the model's window: older or less relevant parts were left out.",
    ),
    "summarized": (
        "较早的对话已写成摘要，从这一轮起模型读到的是摘要。",
        "Earlier turns were summarized: from this turn on, the model reads the summary instead.",
    ),
    "turns_unreadable": (
        "本会话有无法读取的轮次，已跳过。",
        "Some turns of this session cannot be read and were skipped.",
    ),
    "why_not_ready_ingesting": (
        "这份文档还在读入，读完才能被检索到，请稍后再试。",
        "The document is still being read and can be found once that is done. Try again shortly.",
    ),
    "why_not_ready_failed": (
        "这份文档读入失败，请看 error 里的原因，解决后重新上传。",
        "The document could not be read: see `error`, fix the cause and upload it again.",
    ),
    "why_filters": (
        "它不在本次检索限定的范围内（filters）。请放宽标签、文档、来源或日期的限定。",
        "It is excluded by the filters of this search. Widen the tags, documents, sources or dates.",
    ),
    "why_sample": (
        "它是问脉自带的示例文档。你已有自己的文档，所以没有检索它；问题里写上“问脉”就会检索。",
        "It is part of the guide that comes with Wenmai, which is not searched now that you have documents "
        "of your own. Mention Wenmai in the question to search it.",
    ),
    "why_duplicate": (
        "另一份文档里有完全相同的内容，已用那一份，同样的内容不会出现两次。",
        "Another document contains exactly the same text and was used instead: no text is shown twice.",
    ),
    "why_not_found_by_any_list": (
        "向量检索和关键词检索都没有把它排到前面。请用文档里的说法提问，或问得更具体。",
        "Neither the vector search nor the keyword search ranked it high enough. Use the document's own "
        "words, or ask more precisely.",
    ),
    "why_fusion": (
        "个别检索列表里有它，但合并后被其他片段挤出。请在问题里加上文档的关键词，"
        "或调大 RERANKER_INPUT_TOP_N。",
        "It was in one of the result lists, but other passages ranked above it when the lists were merged. "
        "Add keywords from the document to the question, or raise RERANKER_INPUT_TOP_N.",
    ),
    "why_reranker": (
        "重排模型没有返回它。请换一种问法，或换一个重排模型。",
        "The reranker did not return it. Rephrase the question, or configure another reranker.",
    ),
    "why_threshold": (
        "检索到了它，但相关概率低于阈值。请问得更具体，或调低 RERANK_SCORE_THRESHOLD。",
        "It was found, but its probability is below the threshold. Ask more precisely, or lower "
        "RERANK_SCORE_THRESHOLD.",
    ),
    "why_top_n": (
        "它够相关，但名额已被更相关的片段占满。请调大 rerank_top_n，或把问题问得更窄。",
        "It is relevant, but more relevant passages filled the list. Raise rerank_top_n, or ask a narrower "
        "question.",
    ),
    "why_budget": (
        "选中了它，但模型的窗口放不下。请换窗口更大的模型，或新开一个会话。",
        "It was chosen, but the model's window has no room left. Use a model with a larger window, or "
        "start a new session.",
    ),
    "why_shown": ("它被检索到了，会提供给模型。", "It was found and would be shown to the model."),
    "talk_never": (
        "这个问题按要求没有检索资料，也没有配置语言模型，所以无法回答。",
        "The documents were not searched, as requested, and no model is configured: this cannot be answered.",
    ),
    "talk_greeting": (
        "你好！直接提问就行：我从文档里找答案，引用原文并注明出处。",
        "Hello! Just ask: I look for the answer in the documents, quote it, and name the source.",
    ),
    "talk_introduction": (
        "好的，知道了。有问题请直接问。",
        "Noted. Ask whatever you want to know.",
    ),
    "talk_thanks": ("不客气，有问题随时问。", "You are welcome. Ask whenever you have another question."),
    "talk_closing": ("好的，有问题随时问。", "All right. Ask whenever you have another question."),
    "talk_today": (
        "今天是 {date}，{weekday}，现在是 {time}。",
        "Today is {weekday}, {date}, and it is {time}.",
    ),
    "talk_assistant": (
        "我是这里的问答助手：从已添加的文档里查找答案，引用原文并注明出处，找不到就直说。"
        "现在没有配置语言模型，所以只引用原文，不会改写、翻译或闲聊。",
        "I answer questions from the documents that were added here: I quote them, name the source, and "
        "say so when they contain no answer. No language model is configured, so I only quote: I do not "
        "rephrase, translate or chat.",
    ),
    "talk_private": (
        "对话存在这台服务器上，到期删除。管理服务器的人看得到，用同一个密钥的人也看得到（没有设密钥时，"
        "是能打开这个网页的每个人；网站的访客只看得到自己的）。",
        "Conversations are stored on this server until they expire. Whoever runs it can read them, and so "
        "can everyone with the same key (without keys: everyone who can open this page; visitors to a site "
        "see only their own).",
    ),
    "talk_arithmetic": (
        "我只从文档里查找答案；没有配置语言模型，不会计算。",
        "I only look for answers in the documents; without a language model I do not calculate.",
    ),
    "talk_nothing_said": (
        "这个会话里还没有问答。",
        "This conversation has no questions and answers yet.",
    ),
    "talk_shorter": (
        "没有配置语言模型，不能缩写；上一个回答里也没有可单独引用的原文。",
        "Without a language model I cannot shorten an answer, and the last one has no quote that stands "
        "alone.",
    ),
    "talk_simpler": (
        "没有配置语言模型，只能引用原文，不能换一种说法。可以问得更具体些。",
        "Without a language model I only quote and cannot put it more simply. Try a more specific question.",
    ),
    "talk_reworded": (
        "没有配置语言模型，只能引用原文，不能改写或换格式。",
        "Without a language model I only quote: I cannot rewrite or reformat.",
    ),
    "talk_translated": (
        "没有配置语言模型，只能引用原文，不能翻译。",
        "Without a language model I only quote and cannot translate.",
    ),
    "talk_summary": (
        "没有配置语言模型，不能总结对话；对话本身可以往上翻看。",
        "Without a language model I cannot summarize. Scroll up to read the conversation itself.",
    ),
    "talk_sources": ("上一个回答引用了：", "The last answer quotes:"),
    "talk_certain": (
        "我只照文档回答，不作判断。文档里是这样写的：",
        "I answer only from the documents and make no judgements. This is what they say:",
    ),
    "talk_no_sources": ("上一个回答没有引用任何文档。", "The last answer quotes no document."),
    "talk_questions": ("这个会话里问过：", "Asked in this conversation:"),
    "talk_more_questions": ("……（中间还有 {} 个）", "… ({} more in between)"),
    "answer_cut": ("回答达到了长度上限，在此截断。", "The answer reached a length limit and ends here."),
    "internal": (
        "服务器内部错误，请重试；若仍然出现，请把请求编号告诉管理员。",
        "Something went wrong here. Try again; if the problem persists, give the request id to the operator.",
    ),
    "no_answer": ("模型没有给出任何内容，请重试。", "The model returned no text. Try again."),
    "was_failed": ("这一轮当时失败了，可以重试。", "This turn failed. It can be sent again."),
    "was_interrupted": (
        "这一轮在完成前中断了，可以重试。",
        "This turn was interrupted before it was complete. It can be sent again.",
    ),
    "was_running": (
        "这一轮正由另一个进程处理，请稍后再看。",
        "This turn is being answered by another process. Check again shortly.",
    ),
    "disk_full": (
        "服务器的磁盘已满，这个回答没有保存；请管理员腾出空间，再用同一个 turn_id 重发。",
        "The server's disk is full, so this answer was not stored. Ask the operator to free some space, "
        "then send the question again with the same turn_id.",
    ),
    "store_unavailable": (
        "存储暂时不可用，请稍后重试。",
        "The store is not responding at the moment. Try again shortly.",
    ),
    "store_read_only": (
        "服务器的存储有一部分丢失，暂时只能读；请管理员恢复备份，或接受损失。",
        "Part of the store is lost, so it is read-only for now. Ask the operator to restore a backup, or "
        "to accept the loss.",
    ),
    "not_stored": (
        "回答未能保存到存储中，请再次发送以保存。",
        "The answer could not be stored. Send the question again to keep it.",
    ),
}

# Why an image is refused; the key is `image_` and the fault (core.images).
_TEXTS |= {
    "image_fetched": (
        "{which}是一个网址。问脉从不去网上取图：请把图片本身发来（data: URL）。",
        "{which} is a web address. Wenmai never fetches images: send the image itself, as a data: URL.",
    ),
    "image_not_data": (
        "{which}不是 data:image/…;base64 形式的内容。",
        "{which} is not of the form data:image/…;base64.",
    ),
    "image_base64": ("{which}的 base64 不完整或有错。", "{which} is not valid base64."),
    "image_too_many": (
        f"一个问题最多带 {MAX_IMAGES} 张图片。",
        f"A question takes {MAX_IMAGES} images at most.",
    ),
    "image_too_large": (
        f"{{which}}太大：最多 {MAX_IMAGE_BYTES // 1_000_000} MB。请缩小后再发。",
        f"{{which}} is too large: at most {MAX_IMAGE_BYTES // 1_000_000} MB. Send a smaller one.",
    ),
    "image_too_many_pixels": (
        f"{{which}}的像素太多：最多 {MAX_IMAGE_PIXELS // 10_000} 万像素。请缩小后再发。",
        f"{{which}} has too many pixels: at most {MAX_IMAGE_PIXELS // 1_000_000} million. Send a smaller "
        "one.",
    ),
    "image_kind": (
        "{which}的格式不支持：请用 PNG、JPEG、WebP 或静态 GIF。",
        "{which} has an unsupported format: use PNG, JPEG, WebP or a GIF that is not animated.",
    ),
    "image_other_kind": (
        "{which}的内容与声明的类型不符。",
        "{which} does not match its declared type.",
    ),
    "image_animated": ("{which}是动图：请发其中的一帧。", "{which} is animated: send one frame of it."),
    "image_mixed": (
        "{which}里除了图片还有别的内容：请另存为新图片再发。",
        "{which} contains more than the image: save it as a new image and send that.",
    ),
    "image_unreadable": ("{which}不完整或已损坏。", "{which} is incomplete or damaged."),
    "image_unknown": (
        "{which}已不存在：没有这一轮，或这一轮没有这张图片。",
        "{which} no longer exists: there is no such turn, or it has no such image.",
    ),
    "image_no_vision": (
        "模型 {model} 不支持图片。请去掉图片，或换一个支持图片的模型。",
        "Model {model} cannot see images. Remove them, or choose a model that can.",
    ),
}


def say(key: str, language: Language) -> str:
    """Return the sentence for `key`. Raises KeyError if there is none."""
    return in_language(language, _TEXTS[key])


def say_image(fault: str, language: Language, number: int = 0, model: str = "") -> str:
    """Return why the `number`th image of a question, or (0) the question's images together, are refused."""
    which = f"第 {number} 张图片" if language == "zh" else f"Image {number}"
    return say(f"image_{fault}", language).format(which=which, model=model)


def in_language(language: Language, texts: tuple[str, str]) -> str:
    chinese, english = texts
    return chinese if language == "zh" else english


_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")  # JSON braces contain quotes, so they never match


class PromptLibrary:
    """The prompts of config/prompts, overridden by those in PROMPTS_DIR. Prompts are plain text: no template
    engine touches them.

    Raises BadRequestError, in one line, for a broken file in PROMPTS_DIR.
    """

    def __init__(self, overriding: Path | None = None) -> None:
        self._own = {path.stem: path.read_text(encoding="utf-8").strip() for path in PROMPTS.glob("*.md")}
        self._folder = overriding
        self._texts = self._own
        self.reload()

    def reload(self) -> list[str]:
        """Read PROMPTS_DIR again and return the overridden names. If a file is broken, keep the old texts."""
        paths = sorted(self._folder.glob("[!.]*")) if self._folder else []
        if self._folder and not self._folder.is_dir():
            raise BadRequestError("PROMPTS_DIR is not a folder.")
        texts = {path.stem: self._checked(path) for path in paths}
        self._texts = self._own | texts
        return sorted(texts)

    def _checked(self, path: Path) -> str:
        """Return the file's text, which must have exactly the placeholders of the prompt it overrides."""
        own = self._own.get(path.stem) if path.suffix == ".md" else None
        if own is None:
            hint = did_you_mean(path.name, [f"{name}.md" for name in self._own])
            raise BadRequestError(f"{path.name}: there is no such prompt.{hint}")
        try:
            content = path.read_bytes()
            text = content.decode("utf-8-sig").strip()
        except OSError as error:
            raise BadRequestError(f"{path.name}: it cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise BadRequestError(
                f"{path.name}, line {content[: error.start].count(10) + 1}: not UTF-8."
            ) from error
        if not text:
            raise BadRequestError(f"{path.name}: it is empty.")
        _check_placeholders(path.name, text, set(_PLACEHOLDER.findall(own)))
        return text

    def text(self, name: str, language: Language | None = None) -> str:
        """Raises KeyError when there is no such prompt."""
        return self._texts[f"{name}.{language}" if language else name]

    def system(self, language: Language, role: PromptRole, *, thinking: bool) -> str:
        """Return the system prompt: with passages ("knowledge"), after a search without results ("general"),
        without a search ("unsearched"), or for a model that searches itself ("searching")."""
        role_text = self.text(role, language)
        return f"{role_text}\n\n{self.text('thinking', language)}" if thinking else role_text


def _check_placeholders(name: str, text: str, required: set[str]) -> None:
    """Raises BadRequestError, naming the line of an unknown placeholder."""
    known = f"it has {', '.join(sorted(required))}" if required else "it has none"
    for number, line in enumerate(text.splitlines(), 1):
        for placeholder in _PLACEHOLDER.findall(line):
            if placeholder not in required:
                raise BadRequestError(f"{name}, line {number}: unknown placeholder {placeholder}; {known}.")
    if missing := sorted(required - set(_PLACEHOLDER.findall(text))):
        raise BadRequestError(f"{name}: the placeholder {missing[0]} is missing.")
