"""Documents and how they are handed in, their chunks, candidates and citations; and what a question is
limited to: which documents match, and how the limits are worded for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from core.dates import first_day, last_day
from core.text import Language

SHARED_OWNER = "shared"  # of documents that every owner may search, such as the sample knowledge base
MAX_TAGS = 32  # of one document
MAX_TAG_CHARS = 64
MAX_EXTERNAL_ID_CHARS = 1_024
SCORE_DIGITS = 4  # of a citation's score, from which a prompt is shown again as it was sent


class DocumentStatus(StrEnum):
    INGESTING = "ingesting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of a parsed document under one heading, and on one page where no sentence goes over it.

    `text` is plain or Markdown text; `heading` is the path of headings from the outermost in;
    `page` counts from 1 and is None where the format has no pages; `char_start` is the offset of
    `text` in the document's whole text (all sections' texts joined by "\\n\\n"). `page_starts`: where in
    `text` which page begins, if there are several.
    """

    text: str
    heading: tuple[str, ...] = ()
    page: int | None = None
    char_start: int = 0
    page_starts: tuple[tuple[int, int], ...] = ()

    def page_at(self, offset: int) -> int | None:
        return next((page for start, page in reversed(self.page_starts) if start <= offset), self.page)


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """`date` is what the document itself says: ISO 8601, a day, a month or a year; "" when it says none."""

    title: str
    sections: tuple[Section, ...]
    date: str = ""


@dataclass(frozen=True, slots=True)
class KnowledgeFilter:
    """What a question is limited to; an empty one limits nothing.

    Within `tags`, `document_ids` and `sources` one that fits is enough; of the fields all must fit.
    `since` and `until` are ISO dates (a day, a month or a year), both inclusive; a document without a date
    fits neither.
    """

    tags: tuple[str, ...] = ()
    document_ids: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    since: str = ""
    until: str = ""

    @property
    def limits_nothing(self) -> bool:
        return self == KnowledgeFilter()

    def in_order(self) -> KnowledgeFilter:
        """The same limits are the same filter, whatever their order, and however often each is named."""
        tags, document_ids, sources = (
            tuple(sorted(set(names))) for names in (self.tags, self.document_ids, self.sources)
        )
        return KnowledgeFilter(tags, document_ids, sources, self.since, self.until)


NO_LIMITS = KnowledgeFilter()


@dataclass(frozen=True, slots=True)
class Document:
    """One file. `content_hash` is the SHA-256 of its bytes in hex; times are UTC microseconds.

    `source` names the configured folder it is followed in ("" for an upload); `modified_us` is when that
    file was changed last. While a new version is read in, all of it describes the one that is searched.
    `error` says why it could not be read, or, where `status` is ready, why its newer version could not;
    `refused_hash` is then the newer content's.
    """

    document_id: str
    owner: str
    file_name: str
    content_hash: str
    size_bytes: int
    created_us: int
    status: DocumentStatus
    chunk_count: int = 0
    external_id: str | None = None
    tags: tuple[str, ...] = ()
    date: str | None = None
    error: str | None = None
    source: str = ""
    modified_us: int = 0
    refused_hash: str = ""

    @property
    def is_sample(self) -> bool:
        """Whether it is of the guide that came with Wenmai: what else is shared is in a followed folder."""
        return self.owner == SHARED_OWNER and not self.source


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Whose documents a question searches, and whether without the guide that came with Wenmai."""

    owners: tuple[str, ...]
    without_sample: bool = False


@dataclass(frozen=True, slots=True)
class Upload:
    """`file_name` may be a path of any style; `date` is YYYY, YYYY-MM or YYYY-MM-DD.

    Without a date it gets the one that the document itself bears. `source` names the folder that is followed,
    in which it was found; `modified_us` is when that file was changed last. With `comes_again`, which is
    always so for a source, whoever hands it in will do so again should the server stop before it is read in.
    `tags` None: those of the version before stay. `waited_s`: so long its client has waited for an answer.
    """

    owner: str
    file_name: str
    content: bytes
    external_id: str | None = None
    tags: tuple[str, ...] | None = None
    date: str | None = None
    source: str = ""
    modified_us: int = 0
    comes_again: bool = False
    waited_s: float = 0.0

    @property
    def survives_crash(self) -> bool:
        """Whether its bytes must outlive a crash until it is read in."""
        return not (self.comes_again or self.source)


@dataclass(frozen=True, slots=True)
class Addition:
    """`document` is as it is stored: while a new version is read in, the version that is searched.

    `existing`: the same content was there, or is being read in. `job_id` is None when nothing is left to do.
    """

    document: Document
    job_id: str | None
    existing: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """What of a document is changed without reading it in again. `tags` None: they stay. `date` counts where
    `changes_date`; None takes it away."""

    tags: tuple[str, ...] | None = None
    date: str | None = None
    changes_date: bool = False


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Which documents a list is limited to; None is no limit."""

    status: DocumentStatus | None = None
    source: str | None = None
    tag: str | None = None


class JobStage(StrEnum):
    """`RETRYING`: an outside part did not answer, and is tried again."""

    WAITING = "waiting"
    PARSING = "parsing"
    EMBEDDING = "embedding"
    STORING = "storing"
    VERIFYING = "verifying"
    RETRYING = "retrying"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (JobStage.DONE, JobStage.FAILED, JobStage.CANCELLED)


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """`done` of `total` chunks are embedded and stored; the vectors of `reused` of them were there before.

    `error` is one plain sentence, of the last attempt; `retryable` says whether trying again can help.
    `attempt` counts from 1. Times are UTC microseconds, None where that has not happened.
    """

    job_id: str
    document_id: str
    file_name: str
    stage: JobStage
    done: int
    total: int
    error: str | None = None
    error_code: str | None = None
    retryable: bool = False
    attempt: int = 1
    reused: int = 0
    started_us: int | None = None
    next_try_us: int | None = None
    ended_us: int | None = None


@dataclass(frozen=True, slots=True)
class JobFigures:
    """How many there are now, `retrying` those that wait for their next attempt, `waiting_chunks` of both;
    how many ended since the start."""

    waiting: int
    running: int
    retrying: int
    waiting_chunks: int
    done: int
    failed: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document as it is indexed. Offsets are characters into the document's text.

    `date` is the document's: ISO 8601, a day, a month or a year ("2026-01-31", "2026-01", "2026"), or ""
    when it has none. `version` distinguishes one content of the document from another. `tags` and `source`
    are the document's, as they were stored with the chunk. `title` is what the file's name says of a document
    without headings: it is searched, and shown to nobody.
    """

    chunk_id: str
    document_id: str
    file_name: str
    text: str
    position: int
    heading: str = ""
    page: int | None = None
    char_start: int = 0
    char_end: int = 0
    date: str = ""
    version: str = ""
    tags: tuple[str, ...] = ()
    source: str = ""
    title: str = ""

    @property
    def above(self) -> str:
        """What the text is about when the text does not say it: the heading path, or else the title; the
        date."""
        return " ".join(filter(None, (self.heading or self.title, self.date)))

    @property
    def indexed_text(self) -> str:
        """What is embedded."""
        return f"{self.above}\n{self.text}" if self.above else self.text


COPIED = ("heading", "date", "text")  # what copies have in common, whatever their files are called


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All in document order. `section` has the chunk itself, and is empty when it was not asked for."""

    chunk: Chunk
    before: tuple[Chunk, ...] = ()
    after: tuple[Chunk, ...] = ()
    section: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True)
class FormMatch:
    """What one form of the question found of a chunk: its cosine, the score by words (0 beyond that list's
    end), and its rank in either list, from 1, None beyond the end."""

    dense: float | None = None
    dense_rank: int | None = None
    sparse: float = 0.0
    sparse_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk on its way through ranking.

    Scores are raw (`dense` cosine −1…1, `sparse` a BM25 sum ≥ 0) and None when that list did not
    return the chunk; ranks count from 1. `matches` has the same for each form of the question, in their
    order. `fused` is the weighted RRF score. `probability` is the
    reranker's, 0…1. `key_passage` is verbatim text of the chunk. `reason` comes from InsertBlock. `signs` are
    those of its tokens (core.relevance.tokens), "" where none are stored.
    """

    chunk: Chunk
    dense: float | None = None
    sparse: float | None = None
    dense_rank: int | None = None
    sparse_rank: int | None = None
    fused: float = 0.0
    matches: tuple[FormMatch, ...] = ()
    probability: float = 0.0
    key_passage: str = ""
    reason: str = ""
    signs: str = ""


@dataclass(frozen=True, slots=True)
class Citation:
    """A chunk as the answer's source, as it was then; `index` counts from 1.

    `passage_start` and `passage_end` are where the key passage stands in `text` (characters), None where
    it is no verbatim part of it. `version` is the document's at that time.
    """

    index: int
    document_id: str
    file_name: str
    chunk_id: str
    score: float
    page: int | None
    heading: str
    char_start: int
    char_end: int
    key_passage: str
    text: str
    reason: str = ""
    cited: bool = False
    passage_start: int | None = None
    passage_end: int | None = None
    version: str = ""
    date: str = ""


def fits(limits: KnowledgeFilter, chunk: Chunk) -> bool:
    """As the store's query decides it."""
    return (
        _one_of(limits.tags, chunk.tags)
        and _one_of(limits.document_ids, (chunk.document_id,))
        and _one_of(limits.sources, (chunk.source,))
        and _within(limits, first_day(chunk.date))
    )


def days(limits: KnowledgeFilter) -> tuple[int, int | None] | None:
    """The first and the last day that fit, as numbers (20260131); None: any date fits, and none does."""
    if not limits.since and not limits.until:
        return None
    return max(1, first_day(limits.since)), last_day(limits.until) or None


def scope_of(limits: KnowledgeFilter, language: Language) -> str:
    """In one line for a person; "" when nothing is limited. Documents are counted, not named."""
    chinese = language == "zh"
    fields = [
        _listed("标签：" if chinese else "tags: ", limits.tags, chinese),
        _documents(len(limits.document_ids), chinese),
        _listed("来源：" if chinese else "sources: ", limits.sources, chinese),
        _dates(limits, chinese),
    ]
    return ("；" if chinese else "; ").join(filter(None, fields))


def _one_of(allowed: tuple[str, ...], values: tuple[str, ...]) -> bool:
    return not allowed or not set(allowed).isdisjoint(values)


def _within(limits: KnowledgeFilter, day: int) -> bool:
    bounds = days(limits)
    if bounds is None:
        return True
    return bounds[0] <= day and (bounds[1] is None or day <= bounds[1])


def _listed(name: str, values: tuple[str, ...], chinese: bool) -> str:
    plain = ("、" if chinese else ", ").join(" ".join(value.split()) for value in values)
    return f"{name}{plain}" if plain else ""


def _documents(number: int, chinese: bool) -> str:
    if not number:
        return ""
    if chinese:
        return f"指定的 {number} 份文档"
    return "one chosen document" if number == 1 else f"{number} chosen documents"


def _dates(limits: KnowledgeFilter, chinese: bool) -> str:
    match limits.since, limits.until:
        case "", "":
            return ""
        case since, "":
            return f"日期：{since} 起" if chinese else f"dated {since} or later"
        case "", until:
            return f"日期：{until} 止" if chinese else f"dated {until} or earlier"
        case since, until:
            return f"日期：{since} 至 {until}" if chinese else f"dated {since} to {until}"
