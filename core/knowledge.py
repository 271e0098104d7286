"""Documents and uploads, their chunks, candidates and citations; and filters: which documents a question is
limited to, and how that is worded for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from core.dates import first_day, last_day
from core.formats import reading_of
from core.text import Language

SHARED_OWNER = "shared"  # documents that every owner may search, such as the sample knowledge base
MAX_TAGS = 32  # of one document
MAX_TAG_CHARS = 64
MAX_EXTERNAL_ID_CHARS = 1_024
SCORE_DIGITS = 4  # of a citation's score; a sent prompt is reconstructed from it


class DocumentStatus(StrEnum):
    INGESTING = "ingesting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of a parsed document under one heading, and on one page unless a sentence runs across pages.

    `text` is plain or Markdown text; `heading` is the path of headings, outermost first; `page` counts from 1
    and is None if the format has no pages; `char_start` is the offset of `text` in the document's full text
    (all sections' texts joined by "\\n\\n"). `page_starts`: (offset in `text`, page), if there are several.
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
    """`date` is what the document itself states: ISO 8601, a day, a month or a year; "" if none. `scanned`:
    numbers, from 1, of the pages whose text is only in a picture."""

    title: str
    sections: tuple[Section, ...]
    date: str = ""
    scanned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KnowledgeFilter:
    """What a question is limited to; an empty filter limits nothing.

    Within each of `tags`, `document_ids` and `sources` one match is enough; all fields must match. `since`
    and `until` are ISO dates (a day, a month or a year), both inclusive; a document without a date matches
    neither.
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
        """Normalise: equal limits give equal filters, whatever their order and repetitions."""
        tags, document_ids, sources = (
            tuple(sorted(set(names))) for names in (self.tags, self.document_ids, self.sources)
        )
        return KnowledgeFilter(tags, document_ids, sources, self.since, self.until)


NO_LIMITS = KnowledgeFilter()


@dataclass(frozen=True, slots=True)
class Document:
    """One file. `content_hash` is the SHA-256 of its bytes in hex; times are UTC microseconds.

    `source` names the followed folder it comes from ("" for an upload); `modified_us` is that file's
    modification time. While a new version is ingested, every field describes the one that is searched.
    `error` says why it could not be read or, if `status` is ready, why its newer version could not;
    `refused_hash` is then the newer content's revision. `unread_pages`: those without readable text, such as
    scans, left out because text recognition is not installed. `reading` is `reading_of` at that time.
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
    unread_pages: int = 0
    reading: int = 0

    @property
    def revision(self) -> str:
        return revision_of(self.content_hash, self.reading)

    @property
    def is_outdated(self) -> bool:
        """Whether reading the same file again may find more in it."""
        latest = reading_of(self.file_name)
        if self.reading + 1 == latest and latest % 2:  # text recognition was installed since
            return self.unread_pages > 0 or self.status is DocumentStatus.FAILED
        return self.reading < latest

    @property
    def is_sample(self) -> bool:
        """Whether it is part of the guide shipped with Wenmai; other shared documents have a source."""
        return self.owner == SHARED_OWNER and not self.source


def revision_of(content_hash: str, reading: int) -> str:
    """Identify a content as one reading of it: chunks of two readings never mix. The hash comes first."""
    return f"{content_hash}.{reading}" if reading else content_hash


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Whose documents a question searches, and whether to leave out the guide shipped with Wenmai."""

    owners: tuple[str, ...]
    without_sample: bool = False


@dataclass(frozen=True, slots=True)
class Upload:
    """`file_name` may be a path of any style; `date` is YYYY, YYYY-MM or YYYY-MM-DD.

    Without a date it gets the one that the document itself states. `source` names the followed folder it was
    found in; `modified_us` is that file's modification time. `comes_again`, always true of a source: whoever
    sends it will do so again if the server stops before it is ingested. `tags` None: the previous version's
    are kept. `waited_s` is how long its client has waited for an answer.
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
        """Whether its bytes must survive a crash until it is ingested."""
        return not (self.comes_again or self.source)


@dataclass(frozen=True, slots=True)
class Addition:
    """`document` is as stored: while a new version is ingested, the version that is searched.

    `existing`: the same content was stored or in progress. `job_id` is None if nothing is left to do.
    """

    document: Document
    job_id: str | None
    existing: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes to a document that need no ingestion. `tags` None leaves them. `date` counts if `changes_date`;
    None removes it."""

    tags: tuple[str, ...] | None = None
    date: str | None = None
    changes_date: bool = False


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """Filters of a list of documents; None is no limit."""

    status: DocumentStatus | None = None
    source: str | None = None
    tag: str | None = None


class JobStage(StrEnum):
    """`RETRYING`: an external service did not answer, and is tried again."""

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
    """`done` of `total` chunks are embedded and stored; the vectors of `reused` of them existed before.

    `error` is one plain sentence, of the last attempt; `retryable` says whether another attempt can help.
    `attempt` counts from 1. Times are UTC microseconds, None if it has not happened.
    The last three are the document's.
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
    external_id: str | None = None
    source: str = ""
    sample: bool = False


@dataclass(frozen=True, slots=True)
class JobFigures:
    """How many jobs there are now, `retrying` those that wait for their next attempt, `waiting_chunks` the
    chunks of both kinds that wait; and how many ended since the start."""

    waiting: int
    running: int
    retrying: int
    waiting_chunks: int
    done: int
    failed: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document as it is indexed. Offsets are characters in the document's text.

    `date` is the document's: ISO 8601, a day, a month or a year ("2026-01-31", "2026-01", "2026"), or "" if
    it has none. `version` distinguishes one content of the document, and one reading of it, from another.
    `tags` and `source` are the document's, as stored with the chunk. `title` is derived from the file
    name of a document without headings: it is searched, but not shown.
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
        """Context that the text itself lacks: the heading path, or else the title; and the date."""
        return " ".join(filter(None, (self.heading or self.title, self.date)))

    @property
    def indexed_text(self) -> str:
        """The text that is embedded."""
        return f"{self.above}\n{self.text}" if self.above else self.text


COPIED = ("heading", "date", "text")  # equal in copies, whatever their files are called


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Chunks in document order. `section` includes the chunk itself, and is empty if it was not requested."""

    chunk: Chunk
    before: tuple[Chunk, ...] = ()
    after: tuple[Chunk, ...] = ()
    section: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True)
class FormMatch:
    """How one form of the question matched a chunk: the cosine, the sparse score (0 beyond the end of that
    list), and the rank in each list, from 1, None beyond its end."""

    dense: float | None = None
    dense_rank: int | None = None
    sparse: float = 0.0
    sparse_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk on its way through ranking.

    Scores are raw (`dense` cosine −1…1, `sparse` a BM25 sum ≥ 0) and None if that list did not return the
    chunk; ranks count from 1. `matches` has the same for each form of the question, in order. `fused` is the
    weighted RRF score, `probability` the reranker's, 0…1. `key_passage` is verbatim text of the chunk.
    `reason` comes from InsertBlock. `signs` are its tokens' (core.relevance.meaning), "" if none are stored.
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
    """A chunk as a source of the answer, as it was then; `index` counts from 1.

    `passage_start` and `passage_end` delimit the key passage in `text` (characters), None if it is not a
    verbatim part of it. `version` is the document's at that time.
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
    """Whether the chunk matches the filter, as the store's query decides it."""
    return (
        _one_of(limits.tags, chunk.tags)
        and _one_of(limits.document_ids, (chunk.document_id,))
        and _one_of(limits.sources, (chunk.source,))
        and _within(limits, first_day(chunk.date))
    )


def days(limits: KnowledgeFilter) -> tuple[int, int | None] | None:
    """Return the first and last matching day as numbers (20260131); None: undated documents match, too."""
    if not limits.since and not limits.until:
        return None
    return max(1, first_day(limits.since)), last_day(limits.until) or None


def scope_of(limits: KnowledgeFilter, language: Language) -> str:
    """Describe the limits in one line, "" without any. Documents are counted, not named."""
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
