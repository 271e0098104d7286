"""Settings that earlier versions had, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

_COLLECTIONS = (
    "COLLECTION_SUFFIX names all collections alike, and a store whose collections have names of other kinds "
    "is backed up with the version before and restored with this one"
)
_WEIGHTS = "the lists of words and of meaning are fused with fixed weights, on which the ranking was fitted"
_SHARES = "what KNOWLEDGE_SHARE and MEMORY_SHARE leave is shared out among the parts of the history"

REMOVED: Mapping[str, str] = {
    "chunk_overlap_tokens": "chunks no longer overlap; WIDEN_TOKENS adds the text around each passage",
    "compress_history": "COMPRESS_AFTER_TOKENS=0 switches summaries off",
    "dense_weight": _WEIGHTS,
    "document_collection": _COLLECTIONS,
    "embedding_model": "EMBEDDING=openai:NAME names the model of the embedding endpoint",
    "first_token_timeout_s": "TOKEN_TIMEOUT_S limits the wait for the first token, too",
    "history_cache_s": "a session's tree stays in memory for five minutes",
    "insert_block_max_parallel": "four passages are judged at once; INSERT_BLOCK_TIMEOUT_S limits them all",
    "knowledge_collection": _COLLECTIONS,
    "max_body_bytes": "a body that is no upload has at most 1,000,000 bytes; uploads have MAX_UPLOAD_BYTES",
    "memory_collection": _COLLECTIONS,
    "message_layout": "set layout in the model's [llms.<model_id>] table, or USE_CHAT_MODE=false",
    "operations_collection": _COLLECTIONS,
    "persona_share": "a persona has at most 15 % of the model's window; MAX_PERSONA_CHARS limits it, too",
    "recent_share": _SHARES,
    "relevant_share": _SHARES,
    "reranker_model": "RERANKER=http:NAME names the model of the rerank endpoint",
    "rrf_k": _WEIGHTS,
    "send_timeout_s": "a reader that takes nothing for two PING_INTERVAL_S is cut off",
    "session_collection": _COLLECTIONS,
    "sparse_weight": _WEIGHTS,
    "summary_share": _SHARES,
    "summary_tokens": "a summary has at most 400 tokens",
    "sync_at_start": "followed folders are looked at at every start, unless SYNC_CRON is empty",
}
"""Name, as in wenmai.toml → what replaces it."""

_NAMES_STORED_DATA = frozenset(name for name, instead in REMOVED.items() if instead == _COLLECTIONS)


def removal_of(name: str) -> str:
    """One line for a name of REMOVED."""
    return f"{name.upper()} is no longer a setting: {REMOVED[name]}."


def must_be_refused(name: str) -> bool:
    """Whether going on without it would start with an empty store in place of the one it names."""
    return name in _NAMES_STORED_DATA


def still_set(environment: Mapping[str, str]) -> list[str]:
    """One line for each removed setting that the environment has; nothing reads them."""
    return [removal_of(name) for name in sorted({key.lower() for key in environment} & REMOVED.keys())]
