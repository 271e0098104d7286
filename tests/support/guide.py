"""A small product guide for the retrieval tests, indexed with the bundled embedder."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

from qdrant_client import AsyncQdrantClient, models

from core.knowledge import Chunk
from core.relevance.sparse import encode_document
from services.knowledge.chunks import chunk_payload
from services.store.dialect import VectorStore

COLLECTION = "knowledge"
OWNER = "owner-a"

GUIDE = {
    "fees": ("云盘指南 > 费用", "专业版每月 99 元，按年付费打八折。团队版每人每月 59 元，至少五人起购。"),
    "refund": ("云盘指南 > 退款", "购买后七天内可以申请全额退款，款项在三个工作日内退回原支付方式。"),
    "install": ("云盘指南 > 安装", "桌面客户端支持 Windows 和 macOS，下载安装包后双击运行，按提示完成安装。"),
    "sync": ("云盘指南 > 同步", "同步冲突时，云盘会保留两个版本，并在文件名后面加上设备名称和时间。"),
    "share": ("云盘指南 > 分享", "分享链接可以设置访问密码和有效期，默认有效期为三十天，到期自动失效。"),
    "trash": ("云盘指南 > 回收站", "删除的文件在回收站保留三十天，期间可以随时恢复，之后会被永久清除。"),
    "security": ("云盘指南 > 安全", "所有文件在传输和存储时都用 AES-256 加密，管理员可以强制开启两步验证。"),
    "errors": ("云盘指南 > 错误代码", "错误 E1001 表示空间已满，请清理文件或升级。错误 E2003 表示网络中断。"),
    "config": ("Configuration", "MAX_UPLOAD_MB limits the size of one upload; its default is 2048."),
    "api": ("Developer API", "Each request needs an API key in its header. 60 a minute are allowed."),
    "backup": ("Backup", "Backups run every night and are kept for fourteen days in another region."),
    "mobile": ("Mobile app", "The mobile app uploads photos automatically while the phone is charging."),
}  # fmt: skip


def chunk_of(name: str) -> Chunk:
    heading, text = GUIDE[name]
    chunk_id = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    return Chunk(chunk_id, f"doc-{name}", f"{name}.md", text, 0, heading, char_end=len(text))


def point(
    chunk: Chunk, vector: Sequence[float], owner: str = OWNER, ready: bool = True
) -> models.PointStruct:
    words = encode_document(chunk.indexed_text)
    return models.PointStruct(
        id=chunk.chunk_id,
        vector={
            "dense": list(vector),
            "sparse": models.SparseVector(indices=words.indices, values=words.values),
        },
        payload=chunk_payload(chunk, owner, 1, ready=ready),
    )


@asynccontextmanager
async def open_collection(dimension: int) -> AsyncIterator[VectorStore]:
    client = AsyncQdrantClient(":memory:")
    await client.create_collection(
        COLLECTION,
        vectors_config={"dense": models.VectorParams(size=dimension, distance=models.Distance.COSINE)},
        sparse_vectors_config={"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)},
    )
    yield cast(VectorStore, client)
    await client.close()


async def index_guide(store: VectorStore, vectors: Sequence[Sequence[float]]) -> None:
    """`vectors` in the order of GUIDE."""
    await store.upsert(
        COLLECTION, [point(chunk_of(name), vector) for name, vector in zip(GUIDE, vectors, strict=True)]
    )
